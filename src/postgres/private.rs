//! A private Postgres for when no `DATABASE_URL` is given: demo, tests, benches, a first `wharf serve`.
//!
//! The server's life is in the hands of a *keeper*: the hidden command `wharf private-postgres`, a child of
//! whoever needs the server. The keeper starts the server (or joins the one that runs), says where it listens,
//! and waits for its standard input to end. That happens however its parent ends, `kill -9` included; the last
//! keeper to leave stops the server. Locks on files, which the kernel releases with their process, decide who is
//! last; a pid in a file decides nothing.
//!
//! Postgres refuses to run as root. Started by root, the server runs as `postgres` or `nobody`; that user must be
//! able to reach the data directory, so a place below a private home is replaced by one in `/var/lib/wharf`.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File, Permissions};
use std::hash::{Hash as _, Hasher as _};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::kill;
use nix::unistd::{Gid, Pid, Uid, User};
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, Executor as _, PgConnection};

/// The database that the private server holds.
const DATABASE: &str = "wharf";
/// The port names the socket file only: nothing listens on TCP.
const PORT: u16 = 5432;
/// A Unix socket's path has at most 107 bytes on Linux and 103 on macOS, file name included.
const SOCKET_DIRECTORY_LENGTH_MAX: usize = 85;

const MISSING: &str = "the Postgres server programs (initdb, pg_ctl, postgres) were not found. Install them:
  Debian, Ubuntu:  apt-get install postgresql
  Fedora, RHEL:    dnf install postgresql-server
  Homebrew:        brew install postgresql
or name their folder in WHARF_POSTGRES_BIN, or use a server that runs already: DATABASE_URL=postgres://…";

/// Why there is no private server. The text says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PrivateServerError(String);

impl From<io::Error> for PrivateServerError {
    fn from(error: io::Error) -> Self {
        Self(format!("private Postgres: {error}"))
    }
}

/// Whether a commit must survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// As in production.
    Durable,
    /// For tests: no waiting for the disk.
    Fast,
}

/// A private server in use. It is stopped when its last user lets go of it.
#[derive(Debug)]
pub struct PrivateServer {
    keeper: Child,
    socket_directory: PathBuf,
}

impl PrivateServer {
    /// Starts or joins the server of a place. `program` is the wharf executable, which keeps the server.
    pub fn start(program: &Path, place: &Path, durability: Durability) -> Result<Self, PrivateServerError> {
        let mut command = Command::new(program);
        command.arg("private-postgres").arg(place);
        if durability == Durability::Fast {
            command.arg("--fast");
        }
        // A group of its own: Ctrl-C in the terminal must not stop the server under a gateway that still settles.
        let mut keeper = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(output) = keeper.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let said: Value = serde_json::from_str(&line).unwrap_or(Value::Null);
        if let Some(socket_directory) = said["socket_directory"].as_str() {
            return Ok(Self { socket_directory: socket_directory.into(), keeper });
        }
        let reason = said["error"].as_str().unwrap_or("the private Postgres ended before it was ready");
        keeper.wait()?;
        Err(PrivateServerError(reason.to_owned()))
    }

    /// How to reach its database.
    pub fn options(&self) -> PgConnectOptions {
        super::quiet(local_options(&self.socket_directory))
    }

    /// The same as a URL, for people and for programs such as psql.
    pub fn url(&self) -> String {
        let host = self
            .socket_directory
            .to_string_lossy()
            .replace('%', "%25")
            .replace('/', "%2F")
            .replace(' ', "%20");
        format!("postgres://wharf@{host}:{PORT}/{DATABASE}")
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

fn local_options(socket_directory: &Path) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass()
        .socket(socket_directory)
        .port(PORT)
        .username("wharf")
        .database(DATABASE)
}

/// Keeps a server until standard input ends: the hidden command `wharf private-postgres`.
///
/// Says one line of JSON on `output`: where the server listens, or what is wrong.
pub async fn keep(place: &Path, durability: Durability, mut output: impl io::Write) -> bool {
    match Cluster::open(place, durability).await {
        Ok(cluster) => {
            let line = json!({ "socket_directory": cluster.socket_directory.to_string_lossy() });
            let _ = writeln!(output, "{line}").and_then(|()| output.flush());
            let wait = tokio::task::spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new()));
            let _ = wait.await;
            cluster.leave();
            true
        }
        Err(error) => {
            let _ = writeln!(output, "{}", json!({ "error": error.to_string() }));
            false
        }
    }
}

/// The user that the server runs as, where that is not the user that we run as.
#[derive(Debug, Clone, Copy)]
struct RunAs {
    uid: Uid,
    gid: Gid,
}

struct Cluster {
    programs: PathBuf,
    data: PathBuf,
    socket_directory: PathBuf,
    run_as: Option<RunAs>,
    users: File,
}

impl Cluster {
    async fn open(place: &Path, durability: Durability) -> Result<Self, PrivateServerError> {
        let run_as = run_as()?;
        let place = reachable_place(place, run_as)?;
        let data = place.join("data");
        let programs = find_programs(&data)?;
        // While one starts the server, the next one waits here; whoever stops it holds `users` alone.
        let starting = open_lock(&place.join("start.lock"))?;
        starting.lock()?;
        let users = open_lock(&place.join("users.lock"))?;
        users.lock_shared()?;
        let socket_directory = socket_directory(&place, run_as)?;
        let cluster = Self { programs, data, socket_directory, run_as, users };
        cluster.ensure_running(durability).await?;
        Ok(cluster)
    }

    async fn ensure_running(&self, durability: Durability) -> Result<(), PrivateServerError> {
        if self.our_server_lives() && self.answers(Duration::from_secs(10)).await {
            return self.ensure_database().await;
        }
        if self.our_server_lives() {
            let _ = self.run("pg_ctl", &["stop", "-w", "-m", "immediate"]);
        }
        if !self.data.join("PG_VERSION").exists() {
            self.create()?;
        }
        self.configure(durability)?;
        // No server of ours lives: what such files say is about a process that is gone.
        let _ = fs::remove_file(self.data.join("postmaster.pid"));
        let _ = fs::remove_file(self.socket_directory.join(format!(".s.PGSQL.{PORT}.lock")));
        let _ = fs::remove_file(self.socket_directory.join(format!(".s.PGSQL.{PORT}")));
        let log = self.data.join("server.log");
        let started = self.run("pg_ctl", &["start", "-w", "-t", "60", "-l", &log.to_string_lossy()])?;
        if !started.status.success() {
            let tail = fs::read_to_string(&log).unwrap_or_default();
            let tail: Vec<&str> = tail.lines().rev().take(5).collect();
            let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n  ");
            return Err(PrivateServerError(format!(
                "private Postgres in {} did not start. Its log ({}) ends:\n  {tail}",
                self.data.display(),
                log.display()
            )));
        }
        self.ensure_database().await
    }

    /// Creates the data directory; a creation that was cut off leaves nothing that looks whole.
    fn create(&self) -> Result<(), PrivateServerError> {
        let unfinished = self.data.with_extension("unfinished");
        let _ = fs::remove_dir_all(&unfinished);
        own_directory(&unfinished, self.run_as)?;
        let made = self.run_in(
            &unfinished,
            "initdb",
            &["--username=wharf", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions"],
        )?;
        if !made.status.success() {
            let error = String::from_utf8_lossy(&made.stderr);
            return Err(PrivateServerError(format!("initdb in {} failed: {error}", unfinished.display())));
        }
        let mut settings = fs::OpenOptions::new().append(true).open(unfinished.join("postgresql.conf"))?;
        writeln!(settings, "include 'wharf.conf'")?;
        fs::rename(&unfinished, &self.data)?;
        Ok(())
    }

    fn configure(&self, durability: Durability) -> Result<(), PrivateServerError> {
        let directory = self.socket_directory.to_string_lossy().replace('\'', "''");
        let mut settings = format!(
            "listen_addresses = ''\nport = {PORT}\nunix_socket_directories = '\"{directory}\"'\n\
             unix_socket_permissions = 0700\nmax_connections = 200\nmax_wal_size = '2GB'\n\
             log_line_prefix = '%m [%p] %a '\n"
        );
        if durability == Durability::Fast {
            settings.push_str("fsync = off\nfull_page_writes = off\n");
        }
        let file = self.data.join("wharf.conf");
        fs::write(&file, settings)?;
        if let Some(RunAs { uid, gid }) = self.run_as {
            chown(&file, Some(uid.as_raw()), Some(gid.as_raw()))?;
        }
        Ok(())
    }

    /// Whether the pid in `postmaster.pid` is a Postgres of this data directory, and not a process that was
    /// given the same number later.
    fn our_server_lives(&self) -> bool {
        let Ok(text) = fs::read_to_string(self.data.join("postmaster.pid")) else { return false };
        let Some(pid) = text.lines().next().and_then(|line| line.trim().parse::<i32>().ok()) else {
            return false;
        };
        if kill(Pid::from_raw(pid), None).is_err() {
            return false;
        }
        let ps = Command::new("ps").args(["-ww", "-o", "args=", "-p", &pid.to_string()]).output();
        ps.is_ok_and(|ps| String::from_utf8_lossy(&ps.stdout).contains(&*self.data.to_string_lossy()))
    }

    async fn answers(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        let options = local_options(&self.socket_directory).database("postgres");
        loop {
            match PgConnection::connect_with(&options).await {
                Ok(connection) => {
                    let _ = connection.close().await;
                    return true;
                }
                Err(_) if Instant::now() < until => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(_) => return false,
            }
        }
    }

    async fn ensure_database(&self) -> Result<(), PrivateServerError> {
        let failed = |error: sqlx::Error| PrivateServerError(format!("private Postgres: {error}"));
        let options = local_options(&self.socket_directory).database("postgres");
        let mut connection = PgConnection::connect_with(&options).await.map_err(failed)?;
        let there = connection
            .fetch_optional("select 1 from pg_database where datname = 'wharf'")
            .await
            .map_err(failed)?;
        if there.is_none() {
            connection.execute("create database wharf").await.map_err(failed)?;
        }
        connection.close().await.map_err(failed)
    }

    fn leave(self) {
        let _ = self.users.unlock();
        if self.users.try_lock().is_ok() {
            let _ = self.run("pg_ctl", &["stop", "-w", "-m", "fast"]);
        }
    }

    fn run(&self, program: &str, arguments: &[&str]) -> io::Result<Output> {
        self.run_in(&self.data, program, arguments)
    }

    fn run_in(&self, data: &Path, program: &str, arguments: &[&str]) -> io::Result<Output> {
        let mut command = Command::new(self.programs.join(program));
        // The server's user may not be able to stand where we stand.
        command.args(arguments).arg("-D").arg(data).current_dir("/").stdin(Stdio::null());
        if let Some(RunAs { uid, gid }) = self.run_as {
            command.uid(uid.as_raw()).gid(gid.as_raw());
        }
        command.output()
    }
}

fn open_lock(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(path)
}

fn run_as() -> Result<Option<RunAs>, PrivateServerError> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let user = ["postgres", "nobody"].iter().find_map(|name| User::from_name(name).ok().flatten());
    let user = user.ok_or_else(|| {
        PrivateServerError(
            "Postgres does not run as root, and there is no user `postgres` or `nobody`".into(),
        )
    })?;
    Ok(Some(RunAs { uid: user.uid, gid: user.gid }))
}

/// The place itself, or one in `/var/lib/wharf` if the server's user cannot reach it.
fn reachable_place(place: &Path, run_as: Option<RunAs>) -> Result<PathBuf, PrivateServerError> {
    fs::create_dir_all(place)?;
    let place = place.canonicalize()?;
    let Some(RunAs { uid, gid }) = run_as else { return Ok(place) };
    let mut test = Command::new("test");
    test.arg("-x").arg(&place).uid(uid.as_raw()).gid(gid.as_raw()).current_dir("/");
    if test.status()?.success() {
        return Ok(place);
    }
    let mut hasher = DefaultHasher::new();
    place.hash(&mut hasher);
    let other = Path::new("/var/lib/wharf").join(format!("{:016x}", hasher.finish()));
    fs::create_dir_all(&other)?;
    fs::set_permissions("/var/lib/wharf", Permissions::from_mode(0o755))?;
    Ok(other)
}

fn own_directory(path: &Path, run_as: Option<RunAs>) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o700))?;
    match run_as {
        Some(RunAs { uid, gid }) => chown(path, Some(uid.as_raw()), Some(gid.as_raw())),
        None => Ok(()),
    }
}

/// Where the socket is: in the place, or in a folder of its own where the place's path is too long for one.
fn socket_directory(place: &Path, run_as: Option<RunAs>) -> Result<PathBuf, PrivateServerError> {
    let near = place.join("socket");
    if near.as_os_str().len() <= SOCKET_DIRECTORY_LENGTH_MAX {
        own_directory(&near, run_as)?;
        return Ok(near);
    }
    // Remembered, so that the next keeper finds the same one; fresh, so that nobody can have laid it out for us.
    let note = place.join("socket.path");
    if let Ok(known) = fs::read_to_string(&note)
        && Path::new(&known).is_dir()
    {
        return Ok(known.into());
    }
    let fresh = std::env::temp_dir().join(format!("wharf-{}", uuid::Uuid::new_v4().simple()));
    fs::create_dir(&fresh)?;
    own_directory(&fresh, run_as)?;
    fs::write(&note, fresh.to_string_lossy().as_bytes())?;
    Ok(fresh)
}

/// The folder with the server programs, of the version that made the data if there is data.
fn find_programs(data: &Path) -> Result<PathBuf, PrivateServerError> {
    let made_by = fs::read_to_string(data.join("PG_VERSION")).map(|version| version.trim().to_owned()).ok();
    let candidates = candidate_folders();
    let Some(first) = candidates.first() else { return Err(PrivateServerError(MISSING.to_owned())) };
    let Some(made_by) = made_by else { return Ok(first.clone()) };
    candidates.iter().find(|folder| major_version(folder).as_ref() == Some(&made_by)).cloned().ok_or_else(|| {
        PrivateServerError(format!(
            "{} was made by Postgres {made_by}, which is not installed; install it, or move the folder away",
            data.display()
        ))
    })
}

fn candidate_folders() -> Vec<PathBuf> {
    let whole = |folder: &PathBuf| {
        ["initdb", "pg_ctl", "postgres"].iter().all(|program| folder.join(program).exists())
    };
    if let Some(named) = std::env::var_os("WHARF_POSTGRES_BIN") {
        return Some(PathBuf::from(named)).filter(whole).into_iter().collect();
    }
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in std::env::var_os("PATH").iter().flat_map(std::env::split_paths) {
        // Distributions put links to some of the programs on the PATH; the folder behind them has all.
        let behind = folder.join("pg_ctl").canonicalize().ok();
        folders.extend(behind.and_then(|program| program.parent().map(Path::to_owned)));
    }
    let mut versioned: Vec<(u32, PathBuf)> = Vec::new();
    for (parent, prefix, inside) in [
        ("/usr/lib/postgresql", "", "bin"),
        ("/usr", "pgsql-", "bin"),
        ("/opt/homebrew/opt", "postgresql@", "bin"),
        ("/usr/local/opt", "postgresql@", "bin"),
    ] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let version = name.strip_prefix(prefix).and_then(|version| version.parse().ok());
            versioned.extend(version.map(|version| (version, entry.path().join(inside))));
        }
    }
    versioned.sort_by(|a, b| b.cmp(a));
    folders.extend(versioned.into_iter().map(|(_, folder)| folder));
    folders.retain(whole);
    folders
}

fn major_version(programs: &Path) -> Option<String> {
    let output = Command::new(programs.join("postgres")).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version =
        text.split_ascii_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()))?;
    Some(version.split('.').next()?.to_owned())
}
