//! `wharf effects`: a company's own functions, looked at before they are needed.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use clap::{Args, Subcommand};
use serde_json::json;
use sqlx::PgConnection;
use sqlx::types::Uuid;

use super::ops::{ConfigFile, Ops, Output, plain};
use super::{Usage, runtime};
use crate::binding::check::check;
use crate::books::Change;
use crate::config::{Config, Secrets};
use crate::effect::EffectRule;
use crate::fixture::{Fixture, find};
use crate::inbox::settle::{Batch, Rehearsal};
use crate::inbox::{Delivery, ErrorKind, Origin, Settled};
use crate::provider::{Headers, Verified};

#[derive(Debug, Subcommand)]
pub(super) enum Effects {
    /// Check the functions of [[effect]] against the live database, and run them on fixtures.
    Check(Check),
    /// Print a function to start from.
    Scaffold(Scaffold),
}

impl Effects {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        match self {
            Self::Check(command) => runtime()?.block_on(command.run()),
            Self::Scaffold(command) => command.run(),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Every function must be there, take one jsonb, return void or jsonb, and be executable by the role of DATABASE_URL.
With --fixtures, each fixture whose endpoint has an [[effect]] is settled in a transaction that is rolled back: what
the function raises is said. WH001, WH002 and WH003 are answers; anything else is a fault of the function.
What a rollback does not undo (a call to the outside, dblink) cannot be found out: see docs/EFFECTS.md.

Exit codes: 0 all is well, 1 something is not, 2 usage.

  wharf effects check --fixtures fixtures")]
pub(super) struct Check {
    /// Fixtures (NAME.toml) or folders of them.
    #[arg(long, value_name = "PATH")]
    fixtures: Vec<PathBuf>,
    #[command(flatten)]
    config: ConfigFile,
    #[command(flatten)]
    output: Output,
}

impl Check {
    async fn run(self) -> anyhow::Result<bool> {
        let config = self.config.read(Secrets::NotNeeded)?;
        let fixtures = match self.fixtures.is_empty() {
            true => Vec::new(),
            false => find(&self.fixtures).map_err(|problems| Usage::of(&problems))?,
        };
        let connection = &mut Ops::connect().await?.connection;
        let problems = check(connection, &config.effects).await?;
        for problem in &problems {
            self.say(&problem.call, "cannot be called", Some(&problem.text))?;
        }
        let mut good = problems.is_empty();
        if good {
            for rule in &config.effects {
                self.say(&rule.effect.name(), "can be called", Some(&format!("for {}", rule.change)))?;
            }
            let mut rehearsal = Rehearsal::begin(connection).await?;
            for fixture in &fixtures {
                good &= self.rehearse(&mut rehearsal, &config, fixture).await?;
            }
            rehearsal.end().await?;
        }
        Ok(good)
    }

    /// Settles a fixture for show; whether its functions are without fault.
    async fn rehearse(
        &self,
        rehearsal: &mut Rehearsal<'_>,
        config: &Config,
        fixture: &Fixture,
    ) -> anyhow::Result<bool> {
        let Some(delivery) = delivery(rehearsal.connection(), config, fixture).await? else {
            return Ok(true);
        };
        let now = SystemTime::now().into();
        let settled = rehearsal.settle(Batch::Delivered(&[&delivery]), now).await?;
        let Some(Settled { verdict, .. }) = settled.first() else { return Ok(true) };
        let fault = verdict.trouble().filter(|trouble| trouble.kind == ErrorKind::Database);
        let text = verdict.trouble().map(|trouble| format!("{}: {}", trouble.kind.name(), trouble.text));
        let text = text.map(|text| match text.contains("invalid transaction termination") {
            true => format!("{text}; a function must leave commit and rollback to Wharf"),
            false => text,
        });
        let word = if fault.is_some() { "is a fault of the function" } else { verdict.name() };
        self.say(&fixture.name, word, text.as_deref())?;
        Ok(fault.is_none())
    }

    fn say(&self, what: &str, word: &str, text: Option<&str>) -> io::Result<()> {
        if self.output.json {
            return writeln!(io::stdout(), "{}", json!({ "what": what, "outcome": word, "text": text }));
        }
        let text = text.map(|text| format!(": {}", plain(text))).unwrap_or_default();
        writeln!(io::stdout(), "{what}  {word}{text}")
    }
}

/// A fixture as a delivery to the endpoint of its provider; `None`: no change of it goes to a function.
async fn delivery(
    connection: &mut PgConnection,
    config: &Config,
    fixture: &Fixture,
) -> anyhow::Result<Option<Delivery>> {
    let mut endpoints = config.endpoints.iter();
    let Some(endpoint) = endpoints.find(|own| own.definition.name == fixture.provider) else {
        return Ok(None);
    };
    let effects = EffectRule::for_endpoint(&config.effects, &endpoint.name, &endpoint.tenant);
    let headers: Headers<'_> =
        fixture.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let mut event = endpoint.reader().read(&Verified::from_inbox(&headers, &fixture.body));
    let bound = match &event.content {
        crate::provider::Content::Changes(changes) => {
            changes.iter().any(|change| effects.of(change.name()).is_some())
        }
        _ => false,
    };
    if !bound {
        return Ok(None);
    }
    // It may have been received before; here it is to run.
    event.id = format!("effects check {}", Uuid::new_v4());
    let tenant: Option<Uuid> = sqlx::query_scalar("select id from tenant where name = $1")
        .bind(&endpoint.tenant)
        .fetch_optional(connection)
        .await?;
    let origin = Origin {
        endpoint: endpoint.name.clone(),
        provider: endpoint.definition.name.clone(),
        tenant: tenant.unwrap_or_default(),
        tenant_name: endpoint.tenant.clone(),
        effects: Arc::new(effects),
        gives_up_after: None,
    };
    Ok(Some(Delivery {
        origin: Arc::new(origin),
        event,
        headers: "{}".to_owned(),
        body: Bytes::from(fixture.body.clone()),
        received_at: SystemTime::now().into(),
    }))
}

#[derive(Debug, Args)]
#[command(
    after_help = "  wharf effects scaffold --change invoice.paid --call erp.invoice_paid > invoice_paid.sql"
)]
pub(super) struct Scaffold {
    /// The change.
    #[arg(long, value_name = "CHANGE", value_parser = clap::builder::PossibleValuesParser::new(Change::NAMES))]
    change: String,
    /// The function's schema and name.
    #[arg(long, value_name = "SCHEMA.NAME")]
    call: Option<String>,
}

impl Scaffold {
    fn run(self) -> anyhow::Result<bool> {
        let call = self.call.unwrap_or_else(|| format!("erp.{}", self.change.replace('.', "_")));
        let schema = call.split('.').next().unwrap_or_default();
        let (declared, body) = template(&self.change);
        write!(
            io::stdout(),
            "-- {change}: called by Wharf in the transaction in which the event's id is recorded. See docs/EFFECTS.md.\n\
             create function {call}(change jsonb) returns jsonb language plpgsql\n  \
             set search_path = {schema}, pg_temp as $$\n\
             declare\n{declared}begin\n{body}  \
             -- A message for the outbox, or null.\n  return null;\nend $$;\n\n\
             -- Wharf's role needs no right on your tables if the function is `security definer`, only these:\n\
             -- grant usage on schema {schema} to wharf;\n\
             -- grant execute on function {call}(jsonb) to wharf;\n",
            change = self.change,
        )?;
        Ok(true)
    }
}

/// What a function of a change is given, as declarations, and a body to fill in.
fn template(change: &str) -> (String, String) {
    let text = |name: &str| format!("  {name} text := change->>'{name}';\n");
    let amount = "  -- Minor units: cents, yen, fils.\n  amount bigint := (change->>'amount')::bigint;\n  currency text := change->>'currency';\n";
    let is_receipt = change.starts_with("receipt.");
    let number = if is_receipt { "receipt" } else { "invoice" };
    let mut declared = text(number);
    let specific: &[&str] = match change {
        "invoice.paid" => &["payment"],
        "invoice.payment_failed" => &["payment", "reason"],
        "invoice.refunded" => &["payment", "refund"],
        "invoice.disputed" => &["payment", "dispute", "stage"],
        "invoice.voided" => &["reason"],
        "receipt.received" => &["counting", "notice"],
        _ => &[],
    };
    declared.extend(specific.iter().map(|name| text(name)));
    if ["invoice.issued", "invoice.paid", "invoice.refunded", "invoice.disputed"].contains(&change) {
        declared.push_str(amount);
    }
    let mut body = format!(
        "  -- Lock your row before you read it: two events may come at once.\n  \
         -- perform from {number} where number = {number}_number for no key update;\n  \
         -- if not found then\n  --   raise exception '{number} % is not there', {number} using errcode = 'WH001';  -- tried again\n  \
         -- end if;\n  \
         -- raise exception 'it cannot be' using errcode = 'WH002';           -- a dead letter\n  \
         -- raise exception 'it does not concern us' using errcode = 'WH003'; -- ignored\n"
    )
    .replace(&format!("{number}_number"), &format!("change->>'{number}'"));
    if change == "invoice.paid" {
        body.push_str("  -- Several events can tell of one payment: count it once, by its id.\n");
    }
    if ["receipt.announced", "receipt.received"].contains(&change) {
        body.push_str("  -- for line in select * from jsonb_to_recordset(change->'lines') as line (sku text, expected bigint, received bigint, rejected bigint) loop\n");
    }
    (declared, body)
}
