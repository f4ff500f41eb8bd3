//! What the house is like: rules that a reader relies on, kept by a test.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::repository;

fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}

#[test]
fn the_pure_core_knows_no_shell() {
    let core = ["src/provider", "src/books", "src/redaction"]
        .iter()
        .flat_map(|folder| sources(&repository().join(folder)));
    let alone = ["src/effect.rs", "src/section.rs", "src/timestamp.rs"].map(|file| {
        let path = repository().join(file);
        let text = fs::read_to_string(&path).unwrap();
        (path, text)
    });
    let forbidden = [
        "sqlx",
        "actix",
        "tokio",
        "std::env",
        "std::fs",
        "std::net",
        "SystemTime::now",
        "Instant::now",
        "crate::inbox",
        "crate::ledger",
        "crate::http",
    ];
    for (path, text) in core.chain(alone) {
        for word in forbidden {
            // The module docs may speak of what is absent.
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            assert!(!code.into_iter().any(|line| line.contains(word)), "{} uses {word}", path.display());
        }
    }
}

#[test]
fn deliveries_are_begun_and_committed_in_one_file() {
    for (path, text) in sources(&repository().join("src")) {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let begins = code
            .filter(|line| line.contains("\"begin") || line.contains("commit\"") || line.contains(".begin("));
        // The audit's snapshot can write nothing, so it delivers nothing.
        let snapshot = |line: &&str| path.ends_with("src/audit/mod.rs") && line.contains(", read only\"");
        if begins.filter(|line| !snapshot(line)).count() > 0 {
            assert!(path.ends_with("src/inbox/settle.rs"), "{} begins or commits", path.display());
        }
    }
}

#[test]
fn nothing_is_left_undone() {
    let marks =
        [["TO", "DO"], ["FIX", "ME"], ["to", "do!("], ["unimpl", "emented!("]].map(|parts| parts.concat());
    for folder in ["src", "tests", "benches"] {
        for (path, text) in sources(&repository().join(folder)) {
            for mark in &marks {
                assert!(!text.contains(mark.as_str()), "{} has {mark}", path.display());
            }
        }
    }
}
