//! `make bench`: how many events a second are verified, applied and committed before they are answered?
//!
//! Measured in turns, several times, in one run on one machine, against what Postgres itself does with the same
//! effects in one transaction per event (`pgbench`, prepared statements). Load generator, gateway and database
//! share the machine, and the database is durable. Only the ratio means anything elsewhere.

#![allow(clippy::pedantic, clippy::print_stdout, reason = "a program that measures and prints")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wharf::postgres::private::{Durability, PrivateServer};

const WHARF: &str = env!("CARGO_BIN_EXE_wharf");
const SECRET: &str = "whsec_bench";
const ROUNDS: usize = 3;
const EVENTS: usize = 60_000;
const EVENT_BYTES: usize = 2048;
const DEAD: usize = 100_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let [_, mode, address, connections] = arguments.as_slice()
        && mode == "load"
    {
        runtime.block_on(load(address, connections.parse().unwrap()));
        return;
    }
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-postgres");
    let server = PrivateServer::start(Path::new(WHARF), &place, Durability::Durable).unwrap();
    println!(
        "{EVENTS} events of {EVENT_BYTES} bytes with all effects, {ROUNDS} rounds in turns, a new database each"
    );
    // `cargo bench --bench settle -- NAME` measures one of them.
    let only = arguments.iter().skip(1).find(|argument| !argument.starts_with("--"));
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    for connections in [64, 256] {
        if wanted("fresh") {
            measure(
                &format!("fresh_{connections}_vs_pgbench"),
                &format!("fresh events, {connections} connections, to pgbench"),
                || {
                    // pgbench keeps 64 clients: a backend per client is not how anybody would serve 256.
                    let ceiling = runtime.block_on(pgbench(&server, connections.min(64)));
                    runtime.block_on(wharf(&server, connections)) / ceiling
                },
            );
        }
    }
    if wanted("reprocess") {
        measure(
            "reprocess_vs_live",
            &format!("{DEAD} dead letters, to the live path at 256 connections"),
            || {
                let live = runtime.block_on(wharf(&server, 256));
                runtime.block_on(reprocess(&server)) / live
            },
        );
    }
    if wanted("function") {
        measure(
            "function_vs_books",
            "a function of one insert and one update, to the books, 256 connections",
            || {
                let books = runtime.block_on(wharf(&server, 256));
                runtime.block_on(with_a_function(&server, 256)) / books
            },
        );
    }
}

/// Takes a ratio several times, and prints its median and its spread.
fn measure(figure: &str, what: &str, ratio: impl Fn() -> f64) {
    let mut ratios: Vec<f64> = (0..ROUNDS).map(|_| ratio()).collect();
    ratios.sort_by(f64::total_cmp);
    let (low, median, high) = (ratios[0], ratios[ROUNDS / 2], ratios[ROUNDS - 1]);
    println!("  {what}: {median:.2} times (from {low:.2} to {high:.2})");
    println!("figure {figure} {median:.2}");
}

/// Dead letters a second that `wharf inbox reprocess --all` applies: the same events, dead because their invoices were
/// not there, which they are now.
async fn reprocess(server: &PrivateServer) -> f64 {
    let (options, url) = fresh_database(server, DEAD).await;
    let mut connection = wharf::postgres::connect(&options).await.unwrap();
    let dead = format!(
        "insert into webhook_inbox (tenant_id, endpoint, provider, event_id, event_type, status, attempts, last_error,
           error_kind, fingerprint, headers, body, occurred_at, received_at, settled_at, dead_lettered_at)
         select id, 'stripe', 'stripe', 'evt_' || n, 'payment_intent.succeeded', 'dead', 5, 'not there',
                'invoice_not_found', 'bench', '{HEADERS}',
                convert_to(replace(replace(replace($body${}$body$, 'evt_0', 'evt_' || n), 'pi_0', 'pi_' || n),
                                   'INV-0', 'INV-' || n), 'UTF8'),
                now(), now(), now(), now()
         from tenant, generate_series(1, {DEAD}) n",
        event(0)
    );
    connection.execute(AssertSqlSafe(dead)).await.unwrap();
    connection.execute("checkpoint").await.unwrap();
    let started = Instant::now();
    let output = Command::new(WHARF)
        .args(["inbox", "reprocess", "--all", "--yes", "--config"])
        .arg(configuration(""))
        .env("DATABASE_URL", url)
        .output()
        .unwrap();
    let took = started.elapsed();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{DEAD} applied\n"));
    assert!(output.status.success());
    check(&options, DEAD as i64).await;
    DEAD as f64 / took.as_secs_f64()
}

fn configuration(effects: &str) -> PathBuf {
    let config = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench.toml");
    let text = "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n\
        [[endpoint]]\nname = \"stripe\"\nprovider = \"stripe\"\ntenant = \"acme\"\nlive = true\nsecrets = [\"env:BENCH_SECRET\"]\n";
    std::fs::write(&config, format!("{text}{effects}")).unwrap();
    config
}

/// A migrated database that has seen nothing but its invoices.
async fn fresh_database(
    server: &PrivateServer,
    invoices: usize,
) -> (sqlx::postgres::PgConnectOptions, String) {
    let mut admin = PgConnection::connect_with(&server.options().database("postgres")).await.unwrap();
    admin.execute("drop database if exists bench with (force)").await.unwrap();
    admin.execute("create database bench").await.unwrap();
    let options = server.options().database("bench");
    wharf::postgres::migrate(&options).await.unwrap();
    let mut connection = wharf::postgres::connect(&options).await.unwrap();
    let seed = format!(
        "insert into tenant (name) values ('acme');
         insert into invoice (tenant_id, number, currency, amount_due)
           select id, 'INV-' || n, 'USD', 12900 from tenant, generate_series(1, {invoices}) n"
    );
    connection.execute(AssertSqlSafe(seed)).await.unwrap();
    admin.execute("checkpoint").await.unwrap();
    (options, format!("{}/bench", server.url().trim_end_matches("/wharf")))
}

/// Every event was applied exactly once.
async fn check(options: &sqlx::postgres::PgConnectOptions, events: i64) {
    let mut connection = wharf::postgres::connect(options).await.unwrap();
    for (what, sql) in [
        ("inbox", "select count(*) from webhook_inbox where status = 'processed'"),
        ("entries", "select count(*) from invoice_entry"),
        ("outbox", "select count(*) from outbox"),
        ("paid", "select count(*) from invoice where status = 'paid' and amount_paid = 12900"),
    ] {
        let count: i64 =
            sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection).await.unwrap();
        assert_eq!(count, events, "{what}");
    }
}

/// The same rows, written by hand in one transaction per event. (No colon may stand before a letter or a digit in
/// what follows: pgbench would take it for a variable.)
const SCRIPT: &str = r"\set i :i + 1
\set n :client_id * {EACH} + :i
begin;
insert into wharf.webhook_inbox (tenant_id, endpoint, provider, event_id, event_type, status, attempts, headers, body, occurred_at, received_at, settled_at)
  values ('{TENANT}', 'stripe', 'stripe', 'evt_' || :n::text, 'payment_intent.succeeded', 'processed', 1, '{HEADERS}', '\x{BODY}', now(), now(), now())
  on conflict (endpoint, event_id) do nothing returning id \gset inbox_
select id, version from wharf.invoice where tenant_id = '{TENANT}' and number = 'INV-' || :n::text for no key update \gset invoice_
insert into wharf.invoice_entry (invoice_id, inbox_id, kind, provider, provider_ref, payment_ref, amount, currency, occurred_at)
  values (:invoice_id, :inbox_id, 'payment', 'stripe', 'pi_' || :n::text, 'pi_' || :n::text, 12900, 'USD', now());
update wharf.invoice set amount_paid = amount_paid + 12900, status = 'paid', paid_at = now(), last_payment_at = now(), version = version + 1 where id = :invoice_id;
insert into wharf.outbox (tenant_id, aggregate_type, aggregate_id, aggregate_version, event_type, payload)
  values ('{TENANT}', 'invoice', :invoice_id, :invoice_version + 1, 'invoice.paid', '{PAYLOAD}');
commit;
";
const HEADERS: &str = r#"{"host":"bench","content-type":"application/json"}"#;
const PAYLOAD: &str = r#"{"invoice":"INV-1","status":"paid","previous_status":"awaiting_payment","currency":"USD","amount_due": 12900,"amount_paid": 12900,"amount_refunded": 0,"told":{"amount": 12900,"payment":"pi_1","reason": null},"cause":{"provider":"stripe","endpoint":"stripe","event_id":"evt_1","occurred_at":"2025-12-01T12.00.00Z"}}"#;

async fn pgbench(server: &PrivateServer, clients: usize) -> f64 {
    let (options, url) = fresh_database(server, EVENTS).await;
    let mut connection = wharf::postgres::connect(&options).await.unwrap();
    let tenant: uuid::Uuid =
        sqlx::query_scalar("select id from tenant").fetch_one(&mut connection).await.unwrap();
    let transactions = EVENTS / clients;
    let script = SCRIPT
        .replace("{BODY}", &hex::encode(event(0)))
        .replace("{TENANT}", &tenant.to_string())
        .replace("{EACH}", &transactions.to_string())
        .replace("{HEADERS}", HEADERS)
        .replace("{PAYLOAD}", PAYLOAD);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pgbench.sql");
    std::fs::write(&file, script).unwrap();
    let started = Instant::now();
    let output = Command::new(program("pgbench"))
        .args([
            "-n",
            "-M",
            "prepared",
            "-j",
            "2",
            "-c",
            &clients.to_string(),
            "-D",
            "i=0",
            "-t",
            &transactions.to_string(),
            "-f",
        ])
        .arg(&file)
        .arg(&url)
        .output()
        .expect("pgbench comes with the Postgres server programs");
    let took = started.elapsed();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let events = transactions * clients;
    check(&options, events as i64).await;
    events as f64 / took.as_secs_f64()
}

/// A program that comes with the Postgres server.
fn program(name: &str) -> PathBuf {
    let folders = std::env::var_os("WHARF_POSTGRES_BIN").map(PathBuf::from).into_iter();
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    versions.sort();
    versions.reverse();
    folders
        .chain(versions)
        .map(|folder| folder.join(name))
        .find(|path| path.exists())
        .unwrap_or_else(|| name.into())
}

struct Gateway(Child);

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Events per second.
async fn wharf(server: &PrivateServer, connections: usize) -> f64 {
    let (options, url) = fresh_database(server, EVENTS).await;
    let seconds = serve_and_load(&url, "", connections);
    check(&options, EVENTS as i64).await;
    EVENTS as f64 / seconds
}

/// A company's own tables, and a function of one update and one insert.
const ERP: &str = "
    create schema erp;
    create table erp.bill (number text primary key, due bigint not null, paid bigint not null default 0);
    insert into erp.bill (number, due) select number, amount_due from wharf.invoice;
    create table erp.payment (id text primary key, bill text not null, amount bigint not null, at timestamptz);
    create function erp.invoice_paid(change jsonb) returns void language plpgsql
      set search_path = erp, pg_temp as $$ begin
        insert into payment values (change->>'payment', change->>'invoice', (change->>'amount')::bigint,
                                    (change->>'occurred_at')::timestamptz);
        update bill set paid = paid + (change->>'amount')::bigint where number = change->>'invoice';
      end $$";
const EFFECT: &str =
    "[[effect]]\nchange = \"invoice.paid\"\ncall = \"erp.invoice_paid\"\nmode = \"instead\"\n";

/// Events per second with a function instead of the books.
async fn with_a_function(server: &PrivateServer, connections: usize) -> f64 {
    let (options, url) = fresh_database(server, EVENTS).await;
    let mut connection = wharf::postgres::connect(&options).await.unwrap();
    connection.execute(ERP).await.unwrap();
    let seconds = serve_and_load(&url, EFFECT, connections);
    let paid: i64 = sqlx::query_scalar(
        "select count(*) from erp.bill join erp.payment on bill = number where paid = due",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(paid, EVENTS as i64);
    EVENTS as f64 / seconds
}

/// The seconds that a gateway took for all events.
fn serve_and_load(url: &str, effects: &str, connections: usize) -> f64 {
    let mut child = Command::new(WHARF)
        .args(["serve", "--log", "json", "--config"])
        .arg(configuration(effects))
        .env("DATABASE_URL", url)
        .env("BENCH_SECRET", SECRET)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let gateway = Gateway(child);
    let serving =
        lines.by_ref().map_while(Result::ok).find(|line| line.contains("\"serving\"")).expect("it serves");
    let serving: serde_json::Value = serde_json::from_str(&serving).unwrap();
    // The log is read, as in production somebody reads it.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["load", serving["listen"].as_str().unwrap(), &connections.to_string()])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    drop(gateway);
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("the load generator measured")
}

/// A Stripe event of [`EVENT_BYTES`] that pays invoice `n`.
fn event(n: usize) -> String {
    let mut text = format!(
        r#"{{"id":"evt_{n}","object":"event","api_version":"2024-06-20","created":1764590400,"livemode":true,"type":"payment_intent.succeeded","data":{{"object":{{"id":"pi_{n}","object":"payment_intent","amount":12900,"amount_received":12900,"currency":"usd","metadata":{{"invoice_id":"INV-{n}"}},"description":""#
    );
    let end = r#""}}}"#;
    text.push_str(&"abcdefghij ".repeat(EVENT_BYTES / 11 + 1)[..EVENT_BYTES - text.len() - end.len()]);
    text + end
}

/// The load generator, a process of its own: all events once, signed beforehand, over keep-alive connections.
/// Prints the seconds it took.
async fn load(address: &str, connections: usize) {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().to_string();
    let requests: Vec<Vec<u8>> = (1..=EVENTS)
        .map(|n| {
            let body = event(n);
            let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
            mac.update(format!("{at}.{body}").as_bytes());
            let signature = hex::encode(mac.finalize().into_bytes());
            format!(
                "POST /webhooks/stripe HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\nstripe-signature: t={at},v1={signature}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
            .into_bytes()
        })
        .collect();
    let requests: &'static [Vec<u8>] = requests.leak();
    let started = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..connections {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        clients.spawn(async move {
            let mut buffer = vec![0; 4096];
            for request in requests.iter().skip(client).step_by(connections) {
                stream.write_all(request).await.unwrap();
                let read = tokio::time::timeout(Duration::from_secs(30), stream.read(&mut buffer))
                    .await
                    .unwrap()
                    .unwrap();
                let reply = &buffer[..read];
                assert!(
                    reply.starts_with(b"HTTP/1.1 200") && reply.ends_with(br#"{"status":"processed"}"#),
                    "{}",
                    String::from_utf8_lossy(reply)
                );
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    let _ = writeln!(std::io::stdout(), "{}", started.elapsed().as_secs_f64());
}
