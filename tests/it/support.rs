//! What the black-box tests stand on: a database per test, the real program, and a client that speaks bytes.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _};
use wharf::postgres::private::{Durability, PrivateServer};

pub const WHARF: &str = env!("CARGO_BIN_EXE_wharf");
pub const STRIPE_SECRET: &str = "whsec_test_black_box";
pub const SHOPIFY_SECRET: &str = "shpss-black-box";
/// `whsec_` and the base64 of `warehouse-black-box-key-1`.
pub const WAREHOUSE_SECRET: &str = "whsec_d2FyZWhvdXNlLWJsYWNrLWJveC1rZXktMQ==";

/// The server that all tests of this process share.
fn server() -> &'static PrivateServer {
    static SERVER: OnceLock<PrivateServer> = OnceLock::new();
    SERVER.get_or_init(|| {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("postgres");
        PrivateServer::start(Path::new(WHARF), &place, Durability::Fast).expect("a private Postgres")
    })
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A migrated database of the test's own, with a tenant, two SKUs, and invoices INV-1 to INV-9 of 100.00 USD.
pub struct Database {
    name: String,
    pub options: PgConnectOptions,
    pub url: String,
}

const SEED: &str = "
    set search_path = wharf;
    insert into tenant (name) values ('acme');
    insert into invoice (tenant_id, number, currency, amount_due)
      select id, 'INV-' || n, 'USD', 10000 from tenant, generate_series(1, 9) n;
    insert into sku_position (tenant_id, sku) select id, sku from tenant, (values ('A'), ('B')) s (sku)";

impl Database {
    pub fn new() -> Self {
        let database = Self::empty();
        block_on(wharf::postgres::migrate(&database.options)).unwrap();
        database.execute(SEED);
        database
    }

    /// A database with nothing in it.
    pub fn empty() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let server = server();
        block_on(async {
            let mut admin = PgConnection::connect_with(&server.options().database("postgres")).await.unwrap();
            admin.execute(AssertSqlSafe(format!("create database {name}"))).await.unwrap();
            admin.close().await.unwrap();
        });
        let url = format!("{}/{name}", server.url().trim_end_matches("/wharf"));
        Self { options: server.options().database(&name), url, name }
    }

    pub fn execute(&self, sql: &str) {
        block_on(async {
            let mut connection = wharf::postgres::connect(&self.options).await.unwrap();
            connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
            connection.close().await.unwrap();
        });
    }

    /// The rows of a query, columns joined by `|`, rows by line ends.
    pub fn rows(&self, sql: &str) -> String {
        let sql = format!(
            "select concat_ws('|', variadic array(select coalesce(value, '') from json_each_text(row_to_json(t)))) from ({sql}) t"
        );
        block_on(async {
            let mut connection = wharf::postgres::connect(&self.options).await.unwrap();
            let rows = connection.fetch_all(AssertSqlSafe(sql)).await.unwrap();
            let rows: Vec<String> = rows.iter().map(|row| row.get::<String, _>(0)).collect();
            connection.close().await.unwrap();
            rows.join("\n")
        })
    }

    /// Every row of every table.
    pub fn dump(&self) -> String {
        let tables = self.rows("select tablename from pg_tables where schemaname = 'wharf' order by 1");
        let rows = tables.lines().map(|table| {
            format!(
                "{table}\n{}",
                self.rows(&format!("select known::text as columns from {table} known order by 1"))
            )
        });
        rows.collect::<Vec<_>>().join("\n\n")
    }

    pub fn insert_invoice(&self, number: &str, due: i64) {
        self.execute(&format!(
            "insert into invoice (tenant_id, number, currency, amount_due)
             select id, '{number}', 'USD', {due} from tenant"
        ));
    }

    pub fn invoice(&self, number: &str) -> String {
        self.rows(&format!(
            "select status, amount_paid, amount_refunded from invoice where number = '{number}'"
        ))
    }

    pub fn inbox(&self) -> String {
        self.rows("select event_id, status, attempts from webhook_inbox order by endpoint, event_id")
    }

    pub fn wait_for(&self, what: &str, sql: &str, wanted: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let found = self.rows(sql);
            if found == wanted {
                return;
            }
            assert!(Instant::now() < until, "{what}: waited for `{wanted}`, still `{found}`");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Locks an invoice row from another session until the result is dropped.
    pub fn lock_invoice(&self, number: &str) -> Lock {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connection = runtime.block_on(async {
            let mut connection = wharf::postgres::connect(&self.options).await.unwrap();
            let sql = format!("begin; select from invoice where number = '{number}' for update");
            connection.execute(AssertSqlSafe(sql)).await.unwrap();
            connection
        });
        Lock { runtime, connection: Some(connection) }
    }

    /// No session of the gateway is left inside a transaction.
    pub fn wait_for_no_open_transaction(&self) {
        self.wait_for(
            "no open transaction",
            "select count(*) from pg_stat_activity where datname = current_database()
               and state like 'idle in transaction%'",
            "0",
        );
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let drop = format!("drop database if exists {} with (force)", self.name);
        let options = server().options().database("postgres");
        block_on(async {
            if let Ok(mut admin) = PgConnection::connect_with(&options).await {
                let _ = admin.execute(AssertSqlSafe(drop)).await;
            }
        });
    }
}

pub struct Lock {
    runtime: tokio::runtime::Runtime,
    connection: Option<PgConnection>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            let _ = self.runtime.block_on(connection.close());
        }
    }
}

/// The real program, serving.
pub struct Gateway {
    child: Child,
    pub address: SocketAddr,
    pub admin: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
    _folder: Option<tempfile::TempDir>,
}

pub const ENDPOINTS: &str = r#"
[[endpoint]]
name = "stripe"
provider = "stripe"
tenant = "acme"
live = true
secrets = ["env:STRIPE_SECRET"]

[[endpoint]]
name = "shopify"
provider = "shopify"
tenant = "acme"
live = true
secrets = ["env:SHOPIFY_SECRET"]

[[endpoint]]
name = "warehouse"
provider = "warehouse"
tenant = "acme"
live = true
secrets = ["env:WAREHOUSE_SECRET"]
"#;

impl Gateway {
    pub fn start(database: &Database) -> Self {
        Self::start_with(&database.url, "")
    }

    /// `server` is added to `[server]`.
    pub fn start_with(url: &str, server: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("wharf.toml");
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n{server}\n{ENDPOINTS}"
        );
        std::fs::write(&config, text).unwrap();
        let mut gateway = Self::start_configured(url, &config);
        gateway._folder = Some(folder);
        gateway
    }

    pub fn start_configured(url: &str, config: &Path) -> Self {
        let mut child = Command::new(WHARF)
            .args(["serve", "--log", "json", "--config"])
            .arg(config)
            .env("DATABASE_URL", url)
            .env("STRIPE_SECRET", STRIPE_SECRET)
            .env("SHOPIFY_SECRET", SHOPIFY_SECRET)
            .env("WAREHOUSE_SECRET", WAREHOUSE_SECRET)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let serving = lines
            .by_ref()
            .map(Result::unwrap)
            .inspect(|line| eprintln!("{line}"))
            .find(|line| line.contains("\"serving\""))
            .expect("the gateway serves");
        let serving: serde_json::Value = serde_json::from_str(&serving).unwrap();
        let address = |key: &str| serving[key].as_str().unwrap().parse().unwrap();
        let (listen, admin) = (address("listen"), address("admin_listen"));
        let log = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                eprintln!("{line}");
                written.lock().unwrap().push(line);
            }
        });
        Self { child, address: listen, admin, log, _folder: None }
    }

    /// What it has logged since it serves.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    pub fn wait_for_log(&self, part: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        while !self.log().contains(part) {
            assert!(Instant::now() < until, "waited for `{part}` in the log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn kill_dash_9(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        request(self.address, &post_bytes(path, headers, body)).expect("an answer")
    }

    pub fn stripe(&self, body: &[u8]) -> Reply {
        let signature = stripe_signature(body, now());
        self.post("/webhooks/stripe", &[("stripe-signature", &signature)], body)
    }

    pub fn pay(&self, event: &str, payment: &str, invoice: &str, amount: i64) -> Reply {
        self.stripe(payment_succeeded(event, payment, invoice, amount).as_bytes())
    }

    pub fn shopify(&self, id: &str, topic: &str, body: &[u8]) -> Reply {
        let signature = shopify_signature(body);
        let headers = [
            ("x-shopify-hmac-sha256", signature.as_str()),
            ("x-shopify-webhook-id", id),
            ("x-shopify-topic", topic),
        ];
        self.post("/webhooks/shopify", &headers, body)
    }

    pub fn warehouse(&self, id: &str, body: &[u8]) -> Reply {
        let at = now().to_string();
        let signature = warehouse_signature(id, &at, body);
        let headers = [
            ("webhook-id", id),
            ("webhook-timestamp", at.as_str()),
            ("webhook-signature", signature.as_str()),
        ];
        self.post("/webhooks/warehouse", &headers, body)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Reply {
    pub fn said(&self) -> (u16, &str) {
        (self.status, self.body.as_str())
    }
}

pub const PROCESSED: (u16, &str) = (200, r#"{"status":"processed"}"#);
pub const IGNORED: (u16, &str) = (200, r#"{"status":"ignored"}"#);
pub const DUPLICATE: (u16, &str) = (200, r#"{"status":"duplicate"}"#);
pub const DEAD: (u16, &str) = (200, r#"{"status":"dead"}"#);
pub const FAILED: (u16, &str) = (500, r#"{"status":"failed"}"#);

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

pub fn post_bytes(path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes =
        format!("POST {path} HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n", body.len()).into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

pub fn request(address: SocketAddr, bytes: &[u8]) -> std::io::Result<Reply> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(bytes)?;
    read_reply(&mut BufReader::new(stream))
}

/// Reads one answer off a connection.
pub fn read_reply(stream: &mut BufReader<TcpStream>) -> std::io::Result<Reply> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .ok_or_else(|| std::io::Error::other(format!("not an answer: {line:?}")))?;
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Reply { status, headers, body: String::from_utf8(body).unwrap() })
}

pub fn mac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

pub fn stripe_signature(body: &[u8], at: u64) -> String {
    let at = at.to_string();
    format!("t={at},v1={}", hex::encode(mac(STRIPE_SECRET.as_bytes(), &[at.as_bytes(), b".", body])))
}

pub fn base64(bytes: &[u8]) -> String {
    use ::base64::Engine as _;
    ::base64::engine::general_purpose::STANDARD.encode(bytes)
}

pub fn shopify_signature(body: &[u8]) -> String {
    base64(&mac(SHOPIFY_SECRET.as_bytes(), &[body]))
}

pub fn warehouse_signature(id: &str, at: &str, body: &[u8]) -> String {
    let parts = [id.as_bytes(), b".", at.as_bytes(), b".", body];
    format!("v1,{}", base64(&mac(b"warehouse-black-box-key-1", &parts)))
}

pub fn payment_succeeded(event: &str, payment: &str, invoice: &str, amount: i64) -> String {
    format!(
        r#"{{"id":"{event}","object":"event","type":"payment_intent.succeeded","created":1764590400,"livemode":true,"data":{{"object":{{"id":"{payment}","amount":{amount},"amount_received":{amount},"currency":"usd","metadata":{{"invoice_id":"{invoice}"}}}}}}}}"#
    )
}

/// Runs the program to its end.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub fn wharf(folder: &Path, environment: &[(&str, &str)], arguments: &[&str]) -> Ran {
    let output = Command::new(WHARF)
        .args(arguments)
        .current_dir(folder)
        .env_remove("DATABASE_URL")
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Where an operator works: a folder with the gateway's configuration.
pub struct Desk {
    url: String,
    folder: tempfile::TempDir,
}

impl Desk {
    pub fn new(database: &Database) -> Self {
        Self::with(database, ENDPOINTS)
    }

    pub fn with(database: &Database, config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("wharf.toml"), config).unwrap();
        Self { url: database.url.clone(), folder }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn environment(&self) -> [(&str, &str); 5] {
        [
            ("DATABASE_URL", &self.url),
            ("USER", "olga"),
            ("STRIPE_SECRET", STRIPE_SECRET),
            ("SHOPIFY_SECRET", SHOPIFY_SECRET),
            ("WAREHOUSE_SECRET", WAREHOUSE_SECRET),
        ]
    }

    /// Runs a command to its end. Whatever it is, it tells no secret.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        let ran = wharf(self.folder(), &self.environment(), arguments);
        assert_tells_no_secret(&ran.out);
        assert_tells_no_secret(&ran.err);
        ran
    }

    /// Runs a command that is to exit 0 and to write nothing to stderr: what it prints.
    pub fn out(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{arguments:?}\n{}", ran.out);
        ran.out
    }

    /// A command to be run otherwise.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(WHARF);
        command.args(arguments).current_dir(self.folder()).envs(self.environment());
        command
    }
}

pub fn assert_tells_no_secret(text: &str) {
    for secret in [STRIPE_SECRET, SHOPIFY_SECRET, WAREHOUSE_SECRET, "warehouse-black-box-key-1"] {
        assert!(!text.contains(secret), "{text}");
    }
}

/// The text with every time in it replaced by `TIME`.
pub fn without_times(text: &str) -> String {
    const PATTERN: &[u8] = b"dddd-dd-ddTdd:dd:ddZ";
    let fits = |at: usize| {
        text.as_bytes().get(at..at + PATTERN.len()).is_some_and(|part| {
            part.iter().zip(PATTERN).all(|(byte, want)| match want {
                b'd' => byte.is_ascii_digit(),
                want => byte == want,
            })
        })
    };
    let mut without = String::new();
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        if fits(at) {
            without.push_str("TIME");
            at += PATTERN.len();
        } else {
            without.push(next);
            at += next.len_utf8();
        }
    }
    without
}

pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
