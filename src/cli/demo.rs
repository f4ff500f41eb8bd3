//! `wharf demo`: the main job before your eyes, on the fixtures, with a private Postgres.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::Context as _;
use clap::Args;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use sqlx::{AssertSqlSafe, Executor as _, PgPool};

use super::fixtures::endpoint_of;
use super::send::{Reply, agent, send};
use super::{Usage, demo_erp, runtime};
use crate::config::{Config, Secrets};
use crate::fixture::{Fixture, find};
use crate::gateway::{self, Running};
use crate::postgres::private::{Durability, PrivateServer};
use crate::postgres::{migrate, pool};
use crate::provider::currency::money;

#[derive(Debug, Args)]
pub(super) struct Demo {
    /// The fixtures, with their wharf.toml and setup.sql.
    #[arg(long, default_value = "fixtures", value_name = "FOLDER")]
    fixtures: PathBuf,
    /// Leave it running at the end, and say what to try.
    #[arg(long)]
    keep: bool,
    /// Land in the tables of the ERP of this folder instead of Wharf's own books.
    #[arg(long, value_name = "FOLDER", conflicts_with = "keep", num_args = 0..=1, default_missing_value = "examples/erp")]
    erp: Option<PathBuf>,
}

/// The balances that a person looks at, by name.
type Balances = BTreeMap<String, Balance>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Balance {
    Invoice { status: String, due: i64, paid: i64, refunded: i64, currency: String },
    Receipt { status: String, received: i64, rejected: i64 },
    Stock { on_hand: i64, on_order: i64 },
}

impl Demo {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        if let Some(folder) = &self.erp {
            return demo_erp::run(folder, &self.fixtures);
        }
        let mut config = Config::read(&self.fixtures.join("wharf.toml"), Secrets::Needed)
            .map_err(|problems| Usage::of(&problems))?;
        let fixtures = find(std::slice::from_ref(&self.fixtures)).map_err(|problems| Usage::of(&problems))?;
        if !self.keep {
            config.server.listen = SocketAddr::from(([127, 0, 0, 1], 0));
            config.server.admin_listen = SocketAddr::from(([127, 0, 0, 1], 0));
        }
        let setup = std::fs::read_to_string(self.fixtures.join("setup.sql"))
            .with_context(|| format!("{}/setup.sql cannot be read", self.fixtures.display()))?;
        let program = std::env::current_exe()?;
        let private = PrivateServer::start(&program, ".wharf/demo".as_ref(), Durability::Durable)?;
        let runtime = runtime()?;
        let (running, pool) = runtime.block_on(async {
            let options = private.options();
            let pool = pool(&options);
            pool.execute("drop schema if exists wharf cascade").await?;
            migrate(&options).await?;
            pool.execute(AssertSqlSafe(setup)).await.context("setup.sql failed")?;
            anyhow::Ok((gateway::start(&config, &options).await?, pool))
        })?;
        let show = Show { config: &config, fixtures: &fixtures, running: &running, pool, runtime: &runtime };
        let good = show.all()?;
        if self.keep {
            show.what_to_try(&private.url())?;
            runtime.block_on(tokio::signal::ctrl_c())?;
        }
        runtime.block_on(running.stop());
        Ok(good)
    }
}

struct Show<'a> {
    config: &'a Config,
    fixtures: &'a [Fixture],
    running: &'a Running,
    pool: PgPool,
    runtime: &'a tokio::runtime::Runtime,
}

impl Show<'_> {
    fn all(&self) -> anyhow::Result<bool> {
        let mut out = io::stdout().lock();
        writeln!(out, "1. Every fixture is delivered once.\n")?;
        let first = self.first_round(&mut out)?;
        let rows = self.inbox_rows()?;
        let books = self.balances()?;

        writeln!(out, "\n2. Every fixture is delivered again, as providers do.\n")?;
        let again = self.count(
            |fixture, reply| reply.outcome == "duplicate" && reply.status == fixture.expect.status,
            |_| {},
        )?;
        let unchanged = books == self.balances()? && rows == self.inbox_rows()?;
        let all = self.fixtures.len();
        writeln!(out, "   {again} of {all} answered \"duplicate\"; books and inbox {}", same(unchanged))?;

        writeln!(out, "\n3. Every fixture is delivered with one byte changed after it was signed.\n")?;
        let tampered = self.count(
            |_, reply| reply.status == 401,
            |body| {
                let middle = body.len() / 2;
                body[middle] ^= 1;
            },
        )?;
        let untouched = books == self.balances()? && rows == self.inbox_rows()?;
        writeln!(out, "   {tampered} of {all} answered 401; books and inbox {}", same(untouched))?;

        self.totals(&mut out, &rows, &books)?;
        let good = first && again == all && unchanged && tampered == all && untouched;
        writeln!(out, "\n{}", if good { "All as it should be." } else { "NOT as it should be." })?;
        Ok(good)
    }

    fn first_round(&self, out: &mut impl io::Write) -> anyhow::Result<bool> {
        let mut table = Table::new();
        table.load_style(NOTHING).set_header(["provider", "event", "answer", "what changed"]);
        let mut good = true;
        let mut before = self.balances()?;
        for fixture in self.fixtures {
            let reply = deliver(self.config, self.running.address, fixture, &fixture.body)?;
            let after = self.balances()?;
            let expected = reply.status == fixture.expect.status && reply.outcome == fixture.expect.outcome;
            good &= expected;
            let expectation = if expected { "" } else { "  <- not as expected" };
            table.add_row([
                fixture.provider.clone(),
                fixture.expect.event_type.clone().unwrap_or_default(),
                format!("{} {}{expectation}", reply.status, reply.outcome),
                changes(&before, &after),
            ]);
            before = after;
        }
        for line in table.to_string().lines() {
            writeln!(out, "  {}", line.trim_end())?;
        }
        Ok(good)
    }

    fn count(
        &self,
        good: impl Fn(&Fixture, &Reply) -> bool,
        change: impl Fn(&mut Vec<u8>),
    ) -> anyhow::Result<usize> {
        let mut count = 0;
        for fixture in self.fixtures {
            let mut body = fixture.body.clone();
            change(&mut body);
            count += usize::from(good(fixture, &deliver(self.config, self.running.address, fixture, &body)?));
        }
        Ok(count)
    }

    fn balances(&self) -> anyhow::Result<Balances> {
        self.runtime.block_on(balances(&self.pool))
    }

    fn inbox_rows(&self) -> anyhow::Result<BTreeMap<String, i64>> {
        let rows: Vec<(String, i64)> = self.runtime.block_on(
            sqlx::query_as("select status, count(*) from webhook_inbox group by status")
                .fetch_all(&self.pool),
        )?;
        Ok(rows.into_iter().collect())
    }

    fn totals(
        &self,
        out: &mut impl io::Write,
        rows: &BTreeMap<String, i64>,
        books: &Balances,
    ) -> anyhow::Result<()> {
        let messages: i64 =
            self.runtime.block_on(sqlx::query_scalar("select count(*) from outbox").fetch_one(&self.pool))?;
        let inbox =
            rows.iter().map(|(status, count)| format!("{count} {status}")).collect::<Vec<_>>().join(", ");
        writeln!(out, "\nTotals\n  inbox    {inbox}\n  outbox   {messages} messages")?;
        for (name, balance) in books {
            writeln!(out, "  {name:<24} {balance}")?;
        }
        Ok(())
    }

    fn what_to_try(&self, database: &str) -> io::Result<()> {
        let (address, admin) = (self.running.address, self.running.admin_address);
        writeln!(
            io::stdout(),
            "\nStill running. Try, in another terminal:\n\
             \n  wharf fixtures replay fixtures --config fixtures/wharf.toml --url http://{address} --again\
             \n  curl -i -X POST http://{address}/webhooks/stripe -d '{{}}'\
             \n  curl http://{admin}/readyz\
             \n  psql '{database}' -c 'select endpoint, event_id, status, last_error from wharf.webhook_inbox'\
             \n\nCtrl-C ends it."
        )
    }
}

/// Sends a fixture, signed as it is, with a body that may have been changed since.
pub(super) fn deliver(
    config: &Config,
    address: SocketAddr,
    fixture: &Fixture,
    body: &[u8],
) -> anyhow::Result<Reply> {
    let endpoint = endpoint_of(config, fixture)?;
    let key = &endpoint.secrets.first().context("an endpoint has a secret")?.key;
    let headers = fixture.signed(&endpoint.definition, key, SystemTime::now().into())?;
    send(&agent(), &format!("http://{address}/webhooks/{}", endpoint.name), &headers, body)
}

fn same(same: bool) -> &'static str {
    if same { "did not change" } else { "CHANGED" }
}

async fn balances(pool: &PgPool) -> anyhow::Result<Balances> {
    let mut all = Balances::new();
    let invoices: Vec<(String, String, i64, i64, i64, String)> = sqlx::query_as(
        "select number, status, amount_due, amount_paid, amount_refunded, currency from invoice",
    )
    .fetch_all(pool)
    .await?;
    for (number, status, due, paid, refunded, currency) in invoices {
        all.insert(number, Balance::Invoice { status, due, paid, refunded, currency });
    }
    let receipts: Vec<(String, String, i64, i64)> = sqlx::query_as(
        "select receipt.number, receipt.status, coalesce(sum(quantity_received), 0)::bigint,
                coalesce(sum(quantity_rejected), 0)::bigint
         from receipt left join receipt_line on receipt_line.receipt_id = receipt.id
         group by receipt.id",
    )
    .fetch_all(pool)
    .await?;
    for (number, status, received, rejected) in receipts {
        all.insert(number, Balance::Receipt { status, received, rejected });
    }
    let positions: Vec<(String, i64, i64)> =
        sqlx::query_as("select sku, on_hand, on_order from sku_position").fetch_all(pool).await?;
    for (sku, on_hand, on_order) in positions {
        all.insert(format!("SKU {sku}"), Balance::Stock { on_hand, on_order });
    }
    Ok(all)
}

/// What a person wants to know of a change, a line each.
fn changes(before: &Balances, after: &Balances) -> String {
    let lines = after.iter().filter_map(|(name, now)| {
        let then = before.get(name);
        (then != Some(now)).then(|| format!("{name} {}", now.since(then)))
    });
    lines.collect::<Vec<_>>().join("\n")
}

impl Balance {
    fn since(&self, then: Option<&Self>) -> String {
        match (then, self) {
            (
                Some(Self::Invoice { status: was, paid: paid_before, refunded: refunded_before, .. }),
                Self::Invoice { status, paid, refunded, currency, due },
            ) => {
                let amount = match (paid - paid_before, refunded - refunded_before) {
                    (0, 0) => format!("due {}", money(*due, currency)),
                    (0, back) if back < 0 => format!("{} not given back after all", money(-back, currency)),
                    (0, back) => format!("{} given back", money(back, currency)),
                    (more, _) => money(more, currency),
                };
                format!("{was} → {status} {amount}")
            }
            (Some(Self::Receipt { status: was, .. }), Self::Receipt { status, received, .. }) => {
                format!("{was} → {status}, {received} received")
            }
            (
                Some(Self::Stock { on_hand: hand_before, on_order: order_before }),
                Self::Stock { on_hand, on_order },
            ) => {
                let part =
                    |name: &str, was: i64, is: i64| (was != is).then(|| format!("{name} {was} → {is}"));
                let parts =
                    [part("on hand", *hand_before, *on_hand), part("on order", *order_before, *on_order)];
                parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
            }
            _ => format!("new: {self}"),
        }
    }
}

impl std::fmt::Display for Balance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Invoice { status, due, paid, refunded, currency } => write!(
                f,
                "{status}, due {}, paid {}, refunded {}",
                money(*due, currency),
                money(*paid, currency),
                money(*refunded, currency)
            ),
            Self::Receipt { status, received, rejected } => {
                write!(f, "{status}, {received} received, {rejected} of them rejected")
            }
            Self::Stock { on_hand, on_order } => write!(f, "{on_hand} on hand, {on_order} on order"),
        }
    }
}
