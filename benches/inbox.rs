//! `make bench-inbox`: how long do the commands that find events take on a full inbox, and by which indexes do they go?
//!
//! Two million events of 30 days, one in twenty of them dead, in a database of its own. The time is that of the whole
//! command, from its start to its end; the indexes are those of the plans that Postgres logs.

#![allow(clippy::pedantic, clippy::print_stdout, reason = "a program that measures and prints")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use wharf::postgres::private::{Durability, PrivateServer};

const WHARF: &str = env!("CARGO_BIN_EXE_wharf");
const EVENTS: usize = 2_000_000;
const ROUNDS: usize = 5;

const COMMANDS: &[&str] = &[
    "list",
    "list --status dead",
    "list --status failed",
    "list --status ignored",
    "list --status discarded",
    "list --status processed",
    "list --endpoint stripe-old",
    "list --endpoint stripe-old --status dead",
    "list --endpoint stripe --status discarded",
    "list --provider shopify",
    "list --provider shopify --status dead",
    "list --type rare.type",
    "list --type rare.type --status processed",
    "list --type rare.type --status dead",
    "list --endpoint stripe --type charge.refunded --status ignored",
    "list --error-kind unreadable",
    "list --error-kind unreadable --endpoint stripe --status failed",
    "list --event-id evt_77777",
    "list --number INV-1999963",
    "list --since 2h",
    "list --since 20days --until 19days",
    "list --since 20days --until 19days --status dead --endpoint stripe",
    "list --before 1000000",
    "errors",
    "errors --endpoint stripe",
    "errors --status failed",
    "errors --error-kind unreadable",
    "errors --since 1day",
];

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("inbox-postgres");
    let server = PrivateServer::start(Path::new(WHARF), &place, Durability::Fast).unwrap();
    println!("{EVENTS} events; median of {ROUNDS} runs of the whole command");
    runtime.block_on(fill(&server));
    let log = Log { file: place.join("data/server.log"), read: 0 };
    measure(&server, log);
}

async fn fill(server: &PrivateServer) {
    let mut admin = PgConnection::connect_with(&server.options().database("postgres")).await.unwrap();
    admin.execute("drop database if exists inbox with (force)").await.unwrap();
    admin.execute("create database inbox").await.unwrap();
    let options = server.options().database("inbox");
    wharf::postgres::migrate(&options).await.unwrap();
    let mut connection = wharf::postgres::connect(&options).await.unwrap();
    let fill = format!(
        "insert into tenant (name) values ('acme');
         insert into webhook_inbox
           (tenant_id, endpoint, provider, event_id, event_type, status, attempts, last_error, error_kind,
            ignored_because, headers, body, occurred_at, received_at, settled_at, dead_lettered_at, next_attempt_at,
            fingerprint, about)
         select tenant.id, endpoint, split_part(endpoint, '-', 1), 'evt_' || n, event_type, status, 1,
                case when trouble then
                  case when n % 3 = 0 then 'the amount at /data/object/amount is an object'
                       else 'invoice INV-' || n || ' is not there' end end,
                case when trouble then case when n % 3 = 0 then 'unreadable' else 'invoice_not_found' end end,
                case when status = 'ignored' then 'this event type is not mapped' end,
                '{{}}', convert_to(repeat('x', 600), 'UTF8'), at, at, case when status <> 'failed' then at end,
                case when status = 'dead' then at end, case when status = 'failed' then now() + interval '1 day' end,
                case when trouble then left(md5(endpoint || event_type || (n % 3 = 0)), 10) end,
                case when trouble then array['INV-' || n] end
         from tenant, generate_series(1, {EVENTS}) n
         cross join lateral (
           select (array['stripe', 'stripe', 'stripe', 'shopify', 'warehouse', 'stripe-old'])[1 + n % 6] as endpoint,
                  case when n % 100000 = 7 then 'rare.type' else
                    (array['payment_intent.succeeded', 'charge.refunded', 'charge.updated', 'orders/paid',
                           'receipt.received'])[1 + n % 5] end as event_type,
                  case when n % 20 = 3 then 'dead' when n % 200 = 4 then 'failed' when n % 4 = 1 then 'ignored'
                       when n % 50000 = 11 then 'discarded' else 'processed' end as status,
                  now() - (1 - n / {EVENTS}.0) * interval '30 days' as at) as told
         cross join lateral (select status in ('failed', 'dead') as trouble) as t"
    );
    connection.execute(AssertSqlSafe(fill)).await.unwrap();
    connection.execute("vacuum analyze webhook_inbox").await.unwrap();
    admin
        .execute(
            "alter database inbox set session_preload_libraries = 'auto_explain';
             alter database inbox set auto_explain.log_min_duration = 0",
        )
        .await
        .unwrap();
}

fn measure(server: &PrivateServer, mut log: Log) {
    let url = format!("{}/inbox", server.url().trim_end_matches("/wharf"));
    let mut slowest = Duration::ZERO;
    let mut scanned = false;
    for command in COMMANDS {
        log.news();
        let mut times: Vec<Duration> = (0..ROUNDS)
            .map(|_| {
                let started = Instant::now();
                let output = Command::new(WHARF)
                    .arg("inbox")
                    .args(command.split(' '))
                    .env("DATABASE_URL", &url)
                    .output()
                    .unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                assert!(!output.stdout.is_empty());
                started.elapsed()
            })
            .collect();
        times.sort();
        let plans = log.news();
        let (indexes, sequential) = scans(&plans);
        slowest = slowest.max(times[ROUNDS / 2]);
        scanned |= sequential;
        println!("{:>5} ms  wharf inbox {command}", times[ROUNDS / 2].as_millis());
        println!("          by {}", indexes.into_iter().collect::<Vec<_>>().join(", "));
        if sequential {
            println!("          AND BY A SEQUENTIAL SCAN OF webhook_inbox");
        }
    }
    println!("the slowest took {} ms; sequential scans of webhook_inbox: {scanned}", slowest.as_millis());
}

/// The server's log, from where it was last read.
struct Log {
    file: PathBuf,
    read: usize,
}

impl Log {
    fn news(&mut self) -> String {
        let all = std::fs::read(&self.file).unwrap_or_default();
        let news = String::from_utf8_lossy(&all[self.read.min(all.len())..]).into_owned();
        self.read = all.len();
        news
    }
}

/// The indexes that plans use, and whether one reads all of the inbox.
fn scans(plans: &str) -> (BTreeSet<String>, bool) {
    let mut indexes = BTreeSet::new();
    for line in plans.lines().filter(|line| line.contains("webhook_inbox")) {
        let name = line
            .split_once("Scan using ")
            .or_else(|| line.split_once("Scan Backward using "))
            .or_else(|| line.split_once("Bitmap Index Scan on "))
            .map(|(_, rest)| rest.split(" on webhook_inbox").next().unwrap_or(rest));
        if let Some(name) = name {
            indexes.insert(name.split("  (").next().unwrap_or(name).trim().to_owned());
        }
    }
    (indexes, plans.contains("Seq Scan on webhook_inbox"))
}
