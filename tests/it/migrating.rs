//! `wharf migrate`: what it would do, and that two at once are safe.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::*;

const TABLES: &str = "select count(*) from pg_class where relnamespace = to_regnamespace('wharf')";

fn plan(database: &Database, more: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let arguments: Vec<&str> = ["migrate", "--plan"].iter().chain(more).copied().collect();
    wharf(folder.path(), &[("DATABASE_URL", &database.url)], &arguments)
}

fn migrations() -> Vec<String> {
    let mut files: Vec<_> =
        fs::read_dir(repository().join("migrations")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
}

#[test]
fn a_plan_names_what_would_be_applied_and_changes_nothing() {
    let database = Database::empty();
    let ran = plan(&database, &[]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    let start =
        "schema wharf has had no migration\nwould apply  1  inbox and books\nwould apply  2  failures\n";
    assert!(ran.out.starts_with(start), "{}", ran.out);
    assert_eq!(ran.out.lines().count(), 1 + migrations().len());
    let ran = plan(&database, &["--sql"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    for text in migrations() {
        assert!(ran.out.contains(&text), "{}", ran.out);
    }
    assert_eq!(database.rows(TABLES), "0");
    assert_eq!(database.rows("select to_regnamespace('wharf') is null"), "true");

    let folder = tempfile::tempdir().unwrap();
    let ran = wharf(folder.path(), &[("DATABASE_URL", &database.url)], &["migrate"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "schema wharf is up to date\n"), "{}", ran.err);
    let before = database.dump();
    let ran = plan(&database, &["--sql"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "schema wharf is up to date\n", ""));
    assert_eq!(database.dump(), before);
}

#[test]
fn a_plan_without_a_database_makes_none() {
    let folder = tempfile::tempdir().unwrap();
    let ran = wharf(folder.path(), &[], &["migrate", "--plan"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    assert!(ran.out.starts_with("schema wharf has had no migration\n"), "{}", ran.out);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    assert_eq!(wharf(folder.path(), &[], &["migrate", "--sql"]).code, 2);
}

#[test]
fn a_database_that_is_ahead_or_had_another_text_is_told_of() {
    let database = Database::new();
    let newest = migrations().len();
    database.execute(
        "insert into _sqlx_migrations (version, description, success, checksum, execution_time)
         values (9000, 'from tomorrow', true, '', 0);
         update _sqlx_migrations set checksum = '\\x00' where version = 2",
    );
    let ran = plan(&database, &[]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    let expected = "schema wharf has had migrations up to 9000
ahead        9000  from tomorrow: this build does not know it; run the Wharf that applied it
differs      2  failures: its text is not the one that was applied
`wharf migrate` would refuse, and change nothing
";
    assert_eq!(ran.out, expected);
    let refused = |part: &str| {
        let folder = tempfile::tempdir().unwrap();
        let ran = wharf(folder.path(), &[("DATABASE_URL", &database.url)], &["migrate"]);
        assert_eq!(ran.code, 1);
        assert!(ran.err.contains(part), "{}", ran.err);
    };
    refused("9000");
    database.execute("delete from _sqlx_migrations where version = 9000");
    refused("migration 2");
    let ran = plan(&database, &[]);
    assert!(ran.out.starts_with(&format!("schema wharf has had migrations up to {newest}\n")), "{}", ran.out);
}

#[test]
fn two_migrations_at_once_both_end_well() {
    for _ in 0..5 {
        let database = Database::empty();
        let start = || {
            Command::new(WHARF)
                .arg("migrate")
                .env("DATABASE_URL", &database.url)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        for child in [start(), start(), start()] {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let applied = database.rows("select count(*), bool_and(success) from _sqlx_migrations");
        assert_eq!(applied, format!("{}|true", migrations().len()));
    }
}
