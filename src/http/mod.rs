//! The two listeners: webhooks from the internet, health for the operator.

pub mod admin;
pub mod answer;
pub mod webhooks;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix_web::dev::Server;
use actix_web::{App, HttpServer, web};
use sqlx::PgPool;

use crate::config::ServerConfig;
use crate::effect::EffectRule;
use webhooks::Gateway;

/// A running listener: where it listens, and the server to await.
pub struct Listener {
    /// The bound address; with port 0 the one that was free.
    pub address: SocketAddr,
    /// To be awaited; its handle stops it.
    pub server: Server,
}

/// Starts the public listener: `POST /webhooks/{endpoint}` and nothing else.
pub fn listen_for_webhooks(config: &ServerConfig, gateway: Gateway) -> std::io::Result<Listener> {
    let gateway = web::Data::new(gateway);
    let server = HttpServer::new(move || {
        App::new()
            .app_data(web::Data::clone(&gateway))
            .route("/webhooks/{endpoint}", web::post().to(webhooks::receive))
            .route("/webhooks/{endpoint}/", web::post().to(webhooks::receive))
            .default_service(web::to(webhooks::refuse))
    })
    .workers(config.workers)
    .max_connections(config.connections_max)
    .keep_alive(config.idle_timeout)
    .client_request_timeout(config.header_timeout)
    .client_disconnect_timeout(std::time::Duration::from_secs(1))
    .shutdown_timeout(config.shutdown_timeout.as_secs())
    .disable_signals()
    .bind(config.listen)?;
    let address = server.addrs()[0];
    Ok(Listener { address, server: server.run() })
}

/// What the admin listener knows.
#[derive(Clone)]
pub struct AdminState {
    /// For the readiness check.
    pub pool: PgPool,
    /// The functions that must be callable.
    pub effects: Vec<EffectRule>,
    /// Set while the gateway shuts down.
    pub stopping: Stopping,
}

/// Whether the gateway is shutting down.
#[derive(Debug, Clone, Default)]
pub struct Stopping(Arc<AtomicBool>);

impl Stopping {
    /// Says that it is.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it is.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Starts the admin listener: `/healthz` and `/readyz`.
pub fn listen_for_admin(config: &ServerConfig, state: AdminState) -> std::io::Result<Listener> {
    let state = web::Data::new(state);
    let server = HttpServer::new(move || {
        App::new()
            .app_data(web::Data::clone(&state))
            .route("/healthz", web::get().to(admin::healthz))
            .route("/readyz", web::get().to(admin::readyz))
    })
    .workers(1)
    .disable_signals()
    .bind(config.admin_listen)?;
    let address = server.addrs()[0];
    Ok(Listener { address, server: server.run() })
}
