//! `wharf demo --erp`: the same deliveries, landing in the tables of an ERP.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context as _;
use sqlx::{AssertSqlSafe, Executor as _, PgPool};

use super::demo::deliver;
use super::{Usage, runtime};
use crate::config::{Config, Secrets};
use crate::fixture::{Fixture, find};
use crate::gateway::{self, readers};
use crate::inbox::recorded::Again;
use crate::inbox::select::{Filter, Status, groups};
use crate::inbox::settle::{Batch, settle};
use crate::postgres::private::{Durability, PrivateServer};
use crate::postgres::{connect, migrate, pool};

/// What a person looks at in the ERP: one line per row.
const ERP: &str = "
    select format('invoice  %-9s %-10s of %s, paid %s, credited %s', number, state, amount, paid, credited)
    from erp.invoice
    union all
    select format('receipt  %-9s %s', number, state) from erp.goods_receipt
    order by 1";
/// Wharf's own books, which must stay empty.
const BOOKS: &str = "
    select (select count(*) from invoice) + (select count(*) from invoice_entry) + (select count(*) from receipt)
         + (select count(*) from receipt_entry) + (select count(*) from stock_entry)";

/// Shows all of it; `true` if all is as it should be.
pub(super) fn run(folder: &Path, fixtures: &Path) -> anyhow::Result<bool> {
    let mut config =
        Config::read(&folder.join("wharf.toml"), Secrets::Needed).map_err(|problems| Usage::of(&problems))?;
    config.server.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    config.server.admin_listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let fixtures = find(&[fixtures.to_owned()]).map_err(|problems| Usage::of(&problems))?;
    let program = std::env::current_exe()?;
    let private = PrivateServer::start(&program, ".wharf/demo".as_ref(), Durability::Durable)?;
    let runtime = runtime()?;
    let options = private.options();
    let (running, pool) = runtime.block_on(async {
        let pool = pool(&options);
        pool.execute("drop schema if exists wharf cascade; drop schema if exists erp cascade").await?;
        migrate(&options).await?;
        // On connections of their own: these scripts set what they like.
        for script in ["schema.sql", "seed.sql", "functions.sql"] {
            execute(&options, folder, script).await?;
        }
        anyhow::Ok((gateway::start(&config, &options).await?, pool))
    })?;
    let show = Show { config: &config, pool, runtime: &runtime, options: &options, folder };
    let good = show.all(&fixtures, running.address)?;
    runtime.block_on(running.stop());
    Ok(good)
}

async fn execute(
    options: &sqlx::postgres::PgConnectOptions,
    folder: &Path,
    script: &str,
) -> anyhow::Result<()> {
    let path = folder.join(script);
    let sql = std::fs::read_to_string(&path)
        .map_err(|error| Usage(format!("{} cannot be read ({error})", path.display())))?;
    let mut connection = connect(options).await?;
    connection.execute(AssertSqlSafe(sql)).await.with_context(|| format!("{script} failed"))?;
    Ok(())
}

struct Show<'a> {
    config: &'a Config,
    pool: PgPool,
    runtime: &'a tokio::runtime::Runtime,
    options: &'a sqlx::postgres::PgConnectOptions,
    folder: &'a Path,
}

impl Show<'_> {
    fn all(&self, fixtures: &[Fixture], address: SocketAddr) -> anyhow::Result<bool> {
        let mut out = io::stdout().lock();
        writeln!(out, "The ERP before:\n{}", self.erp()?)?;
        let (mut as_expected, mut others) = (0, Vec::new());
        for fixture in fixtures {
            let reply = deliver(self.config, address, fixture, &fixture.body)?;
            match (reply.status, reply.outcome.as_str())
                == (fixture.expect.status, fixture.expect.outcome.as_str())
            {
                true => as_expected += 1,
                false => others.push(format!("{}: {} {}", fixture.name, reply.status, reply.outcome)),
            }
        }
        let all = fixtures.len();
        writeln!(
            out,
            "1. {all} fixtures are delivered: {as_expected} answered as they are by Wharf's own books."
        )?;
        for other in &others {
            writeln!(out, "   Not so {other}")?;
        }
        writeln!(out, "\nThe ERP after:\n{}", self.erp()?)?;
        let poisoned = others.len() == 1 && self.tell_of_poison(&mut out)?;

        writeln!(out, "3. The cause is fixed (three-decimals.sql), and the event is reprocessed.\n")?;
        self.runtime.block_on(execute(self.options, self.folder, "three-decimals.sql"))?;
        let healed = self.reprocess()?;
        writeln!(out, "   {healed}\n\nThe ERP in the end:\n{}", self.erp()?)?;
        let mut duplicates = 0;
        for fixture in fixtures {
            duplicates +=
                usize::from(deliver(self.config, address, fixture, &fixture.body)?.outcome == "duplicate");
        }
        writeln!(out, "4. All are delivered again: {duplicates} of {all} answered \"duplicate\".")?;
        let own: i64 = self.runtime.block_on(sqlx::query_scalar(BOOKS).fetch_one(&self.pool))?;
        writeln!(out, "   Rows in Wharf's own books: {own}\n")?;
        let good = poisoned && healed == "processed" && duplicates == all && own == 0;
        writeln!(out, "{}", if good { "All as it should be." } else { "NOT as it should be." })?;
        Ok(good)
    }

    fn erp(&self) -> anyhow::Result<String> {
        let rows: Vec<String> = self.runtime.block_on(sqlx::query_scalar(ERP).fetch_all(&self.pool))?;
        Ok(format!("   {}\n", rows.join("\n   ")))
    }

    /// The event that the ERP's function refuses: one, with its reason.
    fn tell_of_poison(&self, out: &mut impl io::Write) -> anyhow::Result<bool> {
        let groups = self.runtime.block_on(async {
            let refused = Filter { error_kinds: vec!["effect_refused".to_owned()], ..Filter::default() };
            anyhow::Ok(groups(&mut connect(self.options).await?, &refused).await?)
        })?;
        writeln!(out, "2. One event is a dead letter, because the ERP's own function refuses it:\n")?;
        for group in &groups {
            writeln!(out, "   {}, {}: {}\n", group.endpoint, group.event_type, group.sample_error)?;
        }
        Ok(groups.len() == 1 && groups[0].events == 1)
    }

    /// Runs what the ERP refused again; in a word, what became of it.
    fn reprocess(&self) -> anyhow::Result<&'static str> {
        self.runtime.block_on(async {
            let mut connection = connect(self.options).await?;
            let refused = Filter {
                statuses: vec![Status::Dead],
                error_kinds: vec!["effect_refused".to_owned()],
                ..Filter::default()
            };
            let ids: Vec<i64> =
                groups(&mut connection, &refused).await?.iter().map(|group| group.sample_id).collect();
            let again = Again::Reprocess { operator: "demo", reason: Some("dinars have three decimals") };
            let batch = Batch::Recorded { ids: &ids, again, readers: &readers(self.config) };
            let settled = settle(&mut connection, batch, std::time::SystemTime::now().into()).await?;
            Ok(settled.first().map_or("nothing", |settled| settled.verdict.name()))
        })
    }
}
