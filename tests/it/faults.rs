//! What breaks: processes, connections, the database. Afterwards everything has happened once or not at all.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt::Linger};
use sqlx::Executor as _;
use wharf::postgres::private::{Durability, PrivateServer};

use crate::support::*;

const WAITS_FOR_A_LOCK: &str = "select count(*) > 0 from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock'";

fn send_and_leave(gateway: &Gateway, body: &str) -> TcpStream {
    let signature = stripe_signature(body.as_bytes(), now());
    let bytes = post_bytes("/webhooks/stripe", &[("stripe-signature", &signature)], body.as_bytes());
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.write_all(&bytes).unwrap();
    stream
}

#[test]
fn killed_between_claim_and_commit_leaves_nothing_and_the_redelivery_applies_it() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    let lock = database.lock_invoice("INV-1");
    let body = payment_succeeded("evt_1", "pi_1", "INV-1", 10_000);
    let _stream = send_and_leave(&gateway, &body);
    // The claim is written, the effect waits for the invoice.
    database.wait_for("the settlement waits", WAITS_FOR_A_LOCK, "true");
    gateway.kill_dash_9();
    drop(lock);
    database.wait_for_no_open_transaction();
    assert_eq!(database.inbox(), "");
    assert_eq!(database.invoice("INV-1"), "awaiting_payment|0|0");
    let gateway = Gateway::start(&database);
    assert_eq!(gateway.stripe(body.as_bytes()).said(), PROCESSED);
    assert_eq!(gateway.stripe(body.as_bytes()).said(), DUPLICATE);
    assert_eq!(database.invoice("INV-1"), "paid|10000|0");
}

#[test]
fn a_client_that_resets_while_the_invoice_is_locked_leaves_no_open_transaction() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    let lock = database.lock_invoice("INV-1");
    for n in 0..20 {
        let stream = send_and_leave(
            &gateway,
            &payment_succeeded(&format!("evt_{n}"), &format!("pi_{n}"), "INV-1", 100),
        );
        if n % 2 == 0 {
            setsockopt(&stream, Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 }).unwrap();
        }
        drop(stream);
    }
    database.wait_for("the settlement waits", WAITS_FOR_A_LOCK, "true");
    drop(lock);
    database.wait_for_no_open_transaction();
    for n in 0..20 {
        let reply = gateway.pay(&format!("evt_{n}"), &format!("pi_{n}"), "INV-1", 100);
        assert!([PROCESSED, DUPLICATE].contains(&reply.said()), "{}", reply.body);
    }
    assert_eq!(database.invoice("INV-1"), "partially_paid|2000|0");
    assert_eq!(database.rows("select count(*) from invoice_entry"), "20");
}

#[test]
fn a_locked_invoice_is_answered_in_time_and_holds_up_nobody_else_for_long() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    let lock = database.lock_invoice("INV-1");
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let reply = gateway.pay("evt_locked", "pi_locked", "INV-1", 100);
            assert_eq!(reply.status, 500, "{}", reply.body);
        });
        for n in 2..=9 {
            let gateway = &gateway;
            scope.spawn(move || {
                let reply = gateway.pay(&format!("evt_{n}"), &format!("pi_{n}"), &format!("INV-{n}"), 100);
                assert_eq!(reply.said(), PROCESSED);
            });
        }
    });
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    database.wait_for(
        "trouble of the database is on record and counts no attempt",
        "select status, attempts, error_kind from webhook_inbox where event_id = 'evt_locked'",
        "failed|0|database_busy",
    );
    drop(lock);
    assert_eq!(gateway.pay("evt_locked", "pi_locked", "INV-1", 100).said(), PROCESSED);
    assert_eq!(database.invoice("INV-1"), "partially_paid|100|0");
}

#[test]
fn a_second_delivery_waits_while_the_first_is_undecided() {
    for commits in [true, false] {
        let database = Database::new();
        let gateways = [Gateway::start(&database), Gateway::start(&database)];
        let [first, second] = gateways;
        let lock = database.lock_invoice("INV-1");
        let body = payment_succeeded("evt_1", "pi_1", "INV-1", 10_000);
        let _stream = send_and_leave(&first, &body);
        database.wait_for("the first waits", WAITS_FOR_A_LOCK, "true");
        let reply = std::thread::scope(|scope| {
            let other = scope.spawn(|| second.stripe(body.as_bytes()));
            database.wait_for(
                "both wait",
                "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
                "2",
            );
            if commits {
                drop(lock);
            } else {
                first.kill_dash_9();
                drop(lock);
            }
            other.join().unwrap()
        });
        assert_eq!(reply.said(), if commits { DUPLICATE } else { PROCESSED });
        assert_eq!(database.invoice("INV-1"), "paid|10000|0");
        assert_eq!(database.rows("select count(*) from invoice_entry"), "1");
    }
}

#[test]
fn postgres_stopped_and_started_is_500_meanwhile_and_200_after() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let place = folder.path().join("a place with spaces");
    let start = || PrivateServer::start(Path::new(WHARF), &place, Durability::Fast).unwrap();
    let server = start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(wharf::postgres::migrate(&server.options())).unwrap();
    let gateway = Gateway::start_with(&server.url(), "");
    let seed = "insert into invoice (tenant_id, number, currency, amount_due) select id, 'INV-1', 'USD', 10000 from tenant";
    runtime.block_on(async {
        let mut connection = wharf::postgres::connect(&server.options()).await.unwrap();
        connection.execute(seed).await.unwrap();
    });
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-1", 100).said(), PROCESSED);
    drop(server);
    for n in 2..5 {
        assert_eq!(gateway.pay(&format!("evt_{n}"), &format!("pi_{n}"), "INV-1", 100).status, 500);
    }
    let ready = |gateway: &Gateway| {
        request(gateway.admin, b"GET /readyz HTTP/1.1\r\nhost: t\r\n\r\n").unwrap().status
    };
    assert_eq!(ready(&gateway), 503);
    let server = start();
    for n in 2..5 {
        assert_eq!(gateway.pay(&format!("evt_{n}"), &format!("pi_{n}"), "INV-1", 100).said(), PROCESSED);
    }
    assert_eq!(ready(&gateway), 200);
    drop(gateway);
    drop(server);
}

#[test]
fn sessions_that_the_database_ends_are_replaced() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    for n in 1..=9 {
        assert_eq!(
            gateway.pay(&format!("evt_{n}"), &format!("pi_{n}"), &format!("INV-{n}"), 100).said(),
            PROCESSED
        );
        database.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity
             where datname = current_database() and pid <> pg_backend_pid()",
        );
        let again = gateway.pay(&format!("evt_x{n}"), &format!("pi_x{n}"), &format!("INV-{n}"), 100);
        assert_eq!(again.said(), PROCESSED, "a settler whose session is gone takes a new one");
    }
    assert_eq!(database.rows("select sum(amount_paid) from invoice"), "1800");
}

#[test]
fn a_changed_schema_does_not_stop_a_running_gateway() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-1", 100).said(), PROCESSED);
    database.execute("alter table webhook_inbox add column x int; alter table invoice add column y int");
    let good = (2..=9).filter(|n| {
        gateway.pay(&format!("evt_{n}"), &format!("pi_{n}"), &format!("INV-{n}"), 100).said() == PROCESSED
    });
    assert_eq!(good.count(), 8);
}

#[test]
fn a_stopping_gateway_settles_what_it_took_and_exits_0() {
    let database = Database::new();
    let mut gateway = Gateway::start(&database);
    let lock = database.lock_invoice("INV-1");
    let body = payment_succeeded("evt_1", "pi_1", "INV-1", 10_000);
    let reply = std::thread::scope(|scope| {
        let client = scope.spawn(|| gateway.stripe(body.as_bytes()));
        database.wait_for("the settlement waits", WAITS_FOR_A_LOCK, "true");
        gateway.terminate();
        std::thread::sleep(Duration::from_millis(100));
        drop(lock);
        client.join().unwrap()
    });
    assert_eq!(reply.said(), PROCESSED);
    assert_eq!(gateway.wait().code(), Some(0));
    assert_eq!(database.invoice("INV-1"), "paid|10000|0");
}

#[test]
fn a_full_queue_answers_503_at_once_and_recovers() {
    let database = Database::new();
    let gateway = Gateway::start_with(&database.url, "queue_max = 1\nsettlers = 1");
    let lock = database.lock_invoice("INV-1");
    let _first = send_and_leave(&gateway, &payment_succeeded("evt_1", "pi_1", "INV-1", 100));
    database.wait_for("the settlement waits", WAITS_FOR_A_LOCK, "true");
    let _second = send_and_leave(&gateway, &payment_succeeded("evt_2", "pi_2", "INV-2", 100));
    std::thread::sleep(Duration::from_millis(100));
    let started = Instant::now();
    let reply = gateway.pay("evt_3", "pi_3", "INV-3", 100);
    assert_eq!((reply.status, reply.headers["retry-after"].as_str()), (503, "5"));
    assert!(started.elapsed() < Duration::from_millis(500));
    drop(lock);
    database.wait_for(
        "the queue is worked off",
        "select count(*) from webhook_inbox where status = 'processed'",
        "2",
    );
    assert_eq!(gateway.pay("evt_3", "pi_3", "INV-3", 100).said(), PROCESSED);
}

fn keeper(place: &Path) -> std::process::Child {
    Command::new(WHARF)
        .arg("private-postgres")
        .arg(place)
        .arg("--fast")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap()
}

fn said(keeper: &mut std::process::Child) -> String {
    let mut line = String::new();
    let output = keeper.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
    line
}

#[test]
fn a_private_server_survives_killed_keepers_stale_files_and_company() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let place = folder.path().join("p");
    // Two at once: one server.
    let (mut one, mut two) = (keeper(&place), keeper(&place));
    let (first, second) = (said(&mut one), said(&mut two));
    assert!(first.contains("socket_directory"), "{first}");
    assert_eq!(first, second);
    let pid = || std::fs::read_to_string(place.join("data/postmaster.pid")).ok();
    let server = pid().unwrap();
    // The first leaves: the server stays for the second.
    drop(one.stdin.take());
    one.wait().unwrap();
    assert_eq!(pid().unwrap().lines().next(), server.lines().next());
    // The second is killed: the server is left alone, and the next keeper joins it.
    two.kill().unwrap();
    two.wait().unwrap();
    let mut three = keeper(&place);
    assert_eq!(said(&mut three), first);
    drop(three.stdin.take());
    three.wait().unwrap();
    assert_eq!(pid(), None, "the last one stops the server");
    // A lock file that names a living process which is no Postgres.
    let own = std::process::id();
    std::fs::write(place.join("data/postmaster.pid"), format!("{own}\n{}\n", place.display())).unwrap();
    std::fs::write(place.join("socket/.s.PGSQL.5432.lock"), format!("{own}\n")).unwrap();
    let mut four = keeper(&place);
    assert_eq!(said(&mut four), first);
    drop(four.stdin.take());
    four.wait().unwrap();
}

#[test]
fn missing_server_programs_are_named_with_their_packages() {
    let folder = tempfile::tempdir().unwrap();
    let ran = wharf(folder.path(), &[("WHARF_POSTGRES_BIN", "/nonexistent")], &["migrate"]);
    assert_eq!(ran.code, 1);
    for part in [
        "apt-get install postgresql",
        "dnf install postgresql-server",
        "brew install postgresql",
        "DATABASE_URL",
    ] {
        assert!(ran.err.contains(part), "{}", ran.err);
    }
}
