//! The gateway as a whole: from a configuration and a database to running listeners, and down again.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use anyhow::{Context as _, bail};
use sqlx::postgres::PgConnectOptions;
use sqlx::{PgConnection, PgPool};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;
use uuid::Uuid;

use crate::binding::check::check;
use crate::config::{Config, EndpointConfig};
use crate::effect::{EffectRule, Effects};
use crate::endpoint::Endpoint;
use crate::http::webhooks::Gateway;
use crate::http::{AdminState, Listener, Stopping, listen_for_admin, listen_for_webhooks};
use crate::inbox::Origin;
use crate::inbox::activity::{Activities, FLUSH_INTERVAL};
use crate::inbox::queue::{Limits, Queue, start_settlers};
use crate::inbox::recorded::{Handling, Readers};
use crate::inbox::retry::Retrier;
use crate::postgres::{self, SchemaState};

/// A database that is not there at the start is waited for this long.
const DATABASE_WAIT: Duration = Duration::from_secs(30);

/// A running gateway.
pub struct Running {
    /// The public listener's address.
    pub address: SocketAddr,
    /// The admin listener's address.
    pub admin_address: SocketAddr,
    webhooks: ServerHandle,
    admin: ServerHandle,
    stopping: Stopping,
    queue: Arc<Queue>,
    settlers: JoinSet<()>,
    chores: JoinSet<()>,
    stop_chores: Arc<Notify>,
    servers: JoinSet<std::io::Result<()>>,
    within: Duration,
}

/// Starts the gateway on a migrated database. Tenants that the configuration names are created.
pub async fn start(config: &Config, options: &PgConnectOptions) -> anyhow::Result<Running> {
    let pool = postgres::pool(options);
    wait_for_database(&pool).await?;
    let connection = &mut *pool.acquire().await?;
    check_effects(connection, &config.effects).await?;
    let endpoints = endpoints(config, connection).await?;
    let server = &config.server;
    let limits = Limits { deliveries: server.queue_max, ..Limits::default() };
    let queue = Queue::new(limits);
    let settlers = start_settlers(&queue, options, server.settlers);
    let activities = Arc::new(activities(config));
    let stop = Arc::new(Notify::new());
    let mut chores = JoinSet::new();
    chores.spawn(write_activities(pool.clone(), Arc::clone(&activities), Arc::clone(&stop)));
    if server.retries {
        let retrier = Retrier::new(
            options.clone(),
            Arc::new(readers(config)),
            Arc::clone(&stop),
            Arc::clone(&activities),
        );
        chores.spawn(retrier.run());
    }
    let gateway = Gateway {
        endpoints,
        activities,
        queue: Arc::clone(&queue),
        answer_within: server.answer_within,
        body_limit_bytes: server.body_limit_bytes,
        body_timeout: server.body_timeout,
    };
    let stopping = Stopping::default();
    let admin = listen_for_admin(
        server,
        AdminState { pool, effects: config.effects.clone(), stopping: stopping.clone() },
    )
    .with_context(|| format!("cannot listen on {} (admin_listen)", server.admin_listen))?;
    let webhooks = listen_for_webhooks(server, gateway)
        .with_context(|| format!("cannot listen on {} (listen)", server.listen))?;
    let (address, admin_address) = (webhooks.address, admin.address);
    let handles = (webhooks.server.handle(), admin.server.handle());
    let mut servers = JoinSet::new();
    for Listener { server, .. } in [webhooks, admin] {
        servers.spawn(server);
    }
    Ok(Running {
        address,
        admin_address,
        webhooks: handles.0,
        admin: handles.1,
        stopping,
        queue,
        settlers,
        chores,
        stop_chores: stop,
        servers,
        within: server.shutdown_timeout,
    })
}

impl Running {
    /// Stops accepting, settles what is queued, answers, ends. `false` if that took longer than allowed.
    pub async fn stop(mut self) -> bool {
        self.stopping.set();
        let all = async {
            // The listener stops accepting at once and waits for the requests in flight, which wait for the settlers.
            self.webhooks.stop(true).await;
            self.queue.close();
            while self.settlers.join_next().await.is_some() {}
            // A retry that is under way is settled, and what was seen is written down.
            while !self.chores.is_empty() {
                self.stop_chores.notify_waiters();
                let _ = timeout(Duration::from_millis(50), self.chores.join_next()).await;
            }
            self.admin.stop(false).await;
            while self.servers.join_next().await.is_some() {}
        };
        timeout(self.within + Duration::from_secs(2), all).await.is_ok()
    }
}

/// Waits for a database that is starting, and checks that its schema is this build's.
async fn wait_for_database(pool: &PgPool) -> anyhow::Result<()> {
    let started = std::time::Instant::now();
    loop {
        let checked = async { postgres::schema_state(&mut *pool.acquire().await?).await };
        match checked.await {
            Ok(state) => return usable(state),
            // A wrong name or password does not get better by waiting.
            Err(error) if !may_come_up(&error) || started.elapsed() > DATABASE_WAIT => {
                return Err(error).context("the database cannot be used; check DATABASE_URL and the server");
            }
            Err(error) => {
                tracing::warn!(%error, "waiting for the database");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Checks that the database's schema is this build's.
pub async fn check_schema(connection: &mut PgConnection) -> anyhow::Result<()> {
    usable(postgres::schema_state(connection).await?)
}

fn usable(state: SchemaState) -> anyhow::Result<()> {
    match state {
        SchemaState::Current => Ok(()),
        SchemaState::Behind => bail!("the database's schema is behind this Wharf; run `wharf migrate` first"),
        SchemaState::Ahead => bail!("the database was migrated by a newer Wharf; run that version"),
    }
}

/// Whether the error is that of a server that is starting, or not there yet.
fn may_come_up(error: &sqlx::Error) -> bool {
    match error.as_database_error() {
        Some(error) => error.code().is_some_and(|code| code.starts_with("57P") || code.starts_with("53")),
        None => matches!(error, sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut),
    }
}

fn activities(config: &Config) -> Activities {
    let endpoints = config.endpoints.iter().map(|endpoint| {
        let secrets = endpoint.secrets.iter().map(|secret| secret.reference.clone());
        (endpoint.name.clone(), endpoint.definition.name.clone(), secrets.collect())
    });
    Activities::new(endpoints, config.quarantine)
}

/// Writes down what is seen of the endpoints, until it is stopped and has done so once more.
async fn write_activities(pool: PgPool, activities: Arc<Activities>, stop: Arc<Notify>) {
    loop {
        let stopped = tokio::select! {
            () = tokio::time::sleep(FLUSH_INTERVAL) => false,
            () = stop.notified() => true,
        };
        let written = async { activities.flush(&mut *pool.acquire().await?).await };
        if let Err(error) = written.await {
            tracing::warn!(%error, "what was seen of the endpoints could not be written down yet");
        }
        if stopped {
            return;
        }
    }
}

/// Checks that the functions of the configuration are there and can be called.
pub async fn check_effects(connection: &mut PgConnection, rules: &[EffectRule]) -> anyhow::Result<()> {
    let problems =
        check(connection, rules).await.context("the functions of [[effect]] cannot be looked up")?;
    if problems.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    bail!("functions of [[effect]] cannot be called:\n  {}", lines.join("\n  "))
}

/// The configured endpoints by name. Tenants that the configuration names are created.
pub async fn endpoints(
    config: &Config,
    connection: &mut PgConnection,
) -> anyhow::Result<HashMap<String, Endpoint>> {
    let mut endpoints = HashMap::new();
    for endpoint in &config.endpoints {
        let tenant = tenant(connection, &endpoint.tenant).await?;
        let effects = EffectRule::for_endpoint(&config.effects, &endpoint.name, &endpoint.tenant);
        endpoints.insert(endpoint.name.clone(), ready(endpoint, tenant, Arc::new(effects)));
    }
    Ok(endpoints)
}

async fn tenant(connection: &mut PgConnection, name: &str) -> anyhow::Result<Uuid> {
    sqlx::query("insert into tenant (name) values ($1) on conflict (name) do nothing")
        .bind(name)
        .execute(&mut *connection)
        .await
        .with_context(|| format!("cannot create tenant {name}"))?;
    sqlx::query_scalar("select id from tenant where name = $1")
        .bind(name)
        .fetch_one(connection)
        .await
        .with_context(|| format!("cannot read tenant {name}"))
}

/// What is to be done with the events of the configured endpoints.
pub fn readers(config: &Config) -> Readers {
    let handling = |endpoint: &EndpointConfig| Handling {
        reader: endpoint.reader(),
        effects: Arc::new(EffectRule::for_endpoint(&config.effects, &endpoint.name, &endpoint.tenant)),
    };
    config.endpoints.iter().map(|endpoint| (endpoint.name.clone(), handling(endpoint))).collect()
}

fn ready(endpoint: &EndpointConfig, tenant: Uuid, effects: Arc<Effects>) -> Endpoint {
    Endpoint {
        origin: Arc::new(Origin {
            endpoint: endpoint.name.clone(),
            provider: endpoint.definition.name.clone(),
            tenant,
            tenant_name: endpoint.tenant.clone(),
            effects,
            gives_up_after: endpoint.definition.gives_up_after,
        }),
        reader: endpoint.reader(),
        keys: endpoint.keys(),
    }
}
