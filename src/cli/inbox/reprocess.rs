//! `wharf inbox reprocess`.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use sqlx::PgConnection;

use super::show::outlook;
use super::{NotFound, Usage, find};
use crate::cli::difference::{difference_json, difference_line};
use crate::cli::filter::FilterArgs;
use crate::cli::ops::{ConfigFile, Operator, Ops, Output, or_unread, plain};
use crate::cli::runtime;
use crate::config::Secrets;
use crate::gateway::{check_effects, readers};
use crate::inbox::activity::write_applied;
use crate::inbox::queue::BATCH_MAX;
use crate::inbox::recorded::{Again, Candidate, Readers, fitting};
use crate::inbox::select::{Entry, Filter, Status, candidates, page};
use crate::inbox::settle::{Batch, Rehearsal, settle};
use crate::inbox::{Settled, Verdict};

/// A dry run holds its locks for no longer than this.
const DRY_RUN_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
#[command(after_help = "\
  wharf inbox reprocess 4711                          one event
  wharf inbox reprocess --error 1f0c93aa52 --dry-run  a group of `wharf inbox errors`: what would happen
  wharf inbox reprocess --error 1f0c93aa52            run the group again
  wharf inbox reprocess --endpoint stripe --since 1day --rate 50 --stop-after-failures 10
  wharf inbox reprocess --all --yes
  wharf inbox reprocess --status ignored --type charge.captured
                                                      events that a new provider file gives a meaning to

Failed and dead events are run, oldest first, by the code that serves deliveries; each has its own outcome, and none is
applied twice, whatever else runs at the same time. The configuration must be the gateway's: it says how events
are read. A dry run settles them in a transaction that is rolled back.

Exit codes: 0 all applied, 1 some were not, 2 usage, 3 nothing matched.")]
pub(in crate::cli) struct Reprocess {
    /// Inbox ids or event ids.
    #[arg(value_name = "ID", conflicts_with = "all")]
    targets: Vec<String>,
    #[command(flatten)]
    filter: FilterArgs,
    /// All failed and dead events.
    #[arg(long)]
    all: bool,
    /// Show what would happen, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// So many at most, the oldest.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// No more than so many a second.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Stop when so many could not be applied.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    stop_after_failures: Option<u32>,
    /// Why, for those who come after.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    operator: Operator,
    #[command(flatten)]
    config: ConfigFile,
    #[command(flatten)]
    output: Output,
}

/// How a run ended so far.
#[derive(Debug, Default)]
struct Tally {
    applied: u64,
    ignored: u64,
    /// Dead or failed.
    not_applied: u64,
    undecided: u64,
    /// Settled by somebody else, or in other hands.
    passed_over: Vec<i64>,
    /// Those of which an event was applied.
    endpoints: BTreeSet<String>,
}

impl Tally {
    fn count(&mut self, candidate: &Candidate, verdict: &Verdict) {
        match verdict {
            Verdict::Processed => {
                self.applied += 1;
                if !self.endpoints.contains(&candidate.endpoint) {
                    self.endpoints.insert(candidate.endpoint.clone());
                }
            }
            Verdict::Ignored => self.ignored += 1,
            Verdict::Dead(_) | Verdict::Failed(_) => self.not_applied += 1,
            Verdict::Undecided(_) => self.undecided += 1,
            Verdict::Duplicate => self.passed_over.push(candidate.id),
        }
    }

    fn failures(&self) -> u64 {
        self.not_applied + self.undecided
    }
}

impl Reprocess {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        if self.targets.is_empty() && self.filter.is_empty() && !self.all {
            let text = "say which events: ids, a filter such as --error GROUP, or --all";
            return Err(Usage(text.to_owned()).into());
        }
        let filter = self.filter.limited_to(&[Status::Failed, Status::Dead, Status::Ignored])?;
        let config = self.config.read(Secrets::NotNeeded)?;
        let readers = readers(&config);
        runtime()?.block_on(async {
            let mut ops = Ops::connect().await?;
            check_effects(&mut ops.connection, &config.effects).await?;
            let (found, all_named) = self.find(&mut ops.connection, filter).await?;
            let (work, unknown): (Vec<_>, Vec<_>) =
                found.into_iter().partition(|candidate| readers.contains_key(&candidate.endpoint));
            self.tell_of_unknown(&unknown)?;
            let whole = all_named && unknown.is_empty();
            if work.is_empty() && unknown.is_empty() {
                return Err(NotFound("nothing matched; see `wharf inbox list`".to_owned()).into());
            }
            if self.dry_run {
                return Ok(self.dry_run(&mut ops.connection, &work, &readers).await? && whole);
            }
            if !work.is_empty() && !self.confirmed(work.len())? {
                writeln!(io::stderr(), "nothing was done")?;
                return Ok(false);
            }
            Ok(self.run_all(&mut ops, &work, &readers).await? && whole)
        })
    }

    /// The events that fit; and whether those that are named are all among them, or applied already.
    async fn find(
        &self,
        connection: &mut PgConnection,
        mut filter: Filter,
    ) -> anyhow::Result<(Vec<Candidate>, bool)> {
        let mut all_named = true;
        for target in &self.targets {
            let entry = find(connection, target).await?;
            filter.ids.push(entry.id);
            if !filter.statuses.iter().any(|status| status.name() == entry.status) {
                writeln!(io::stderr(), "{target} left out: it is {}{}", entry.status, way_in(&entry))?;
                all_named &= entry.status == "processed";
            }
        }
        Ok((candidates(connection, &filter, self.limit).await?, all_named))
    }

    fn tell_of_unknown(&self, unknown: &[Candidate]) -> io::Result<()> {
        let mut by_endpoint: HashMap<&str, usize> = HashMap::new();
        for candidate in unknown {
            *by_endpoint.entry(&candidate.endpoint).or_default() += 1;
        }
        for (endpoint, count) in by_endpoint {
            let config = self.config.config.display();
            writeln!(
                io::stderr(),
                "{count} left out: endpoint {endpoint} is not in {config}; add it, or name another file with --config"
            )?;
        }
        Ok(())
    }

    fn confirmed(&self, count: usize) -> anyhow::Result<bool> {
        if self.yes {
            return Ok(true);
        }
        let events = format!("{count} event{}", if count == 1 { "" } else { "s" });
        if !io::stdin().is_terminal() {
            let text = format!("{events} would be run; there is nobody to ask: say --yes, or --dry-run");
            return Err(Usage(text).into());
        }
        write!(io::stderr(), "Run {events} again? [y/N] ")?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
    }

    /// The next batch, from the front of what is left: no larger than the remaining failures that are allowed, so
    /// that the run stops exactly there.
    fn batch(&self, left: &[Candidate], tally: &Tally) -> Vec<i64> {
        let mut most = BATCH_MAX as u64;
        if let Some(stop) = self.stop_after_failures {
            most = most.min(u64::from(stop).saturating_sub(tally.failures()));
        }
        if let Some(rate) = self.rate {
            most = most.min(u64::from(rate).div_ceil(4));
        }
        let most = usize::try_from(most).unwrap_or(BATCH_MAX).min(left.len());
        fitting(&left[..most])
    }

    async fn run_all(&self, ops: &mut Ops, work: &[Candidate], readers: &Readers) -> anyhow::Result<bool> {
        let progress = self.progress(work.len())?;
        let mut second = match self.rate.is_none() && self.stop_after_failures.is_none() {
            // As a gateway does: while one batch is flushed to disk, the other is worked out.
            true => Some(ops.another().await?),
            false => None,
        };
        let started = Instant::now();
        let mut tally = Tally::default();
        let mut done = 0;
        while done < work.len() {
            let batches = self.batches(&work[done..], &tally, second.is_some());
            let [one, two] = &batches;
            if one.is_empty() {
                break;
            }
            let (one, two) = tokio::join!(
                self.settle(Some(&mut ops.connection), one, readers),
                self.settle(second.as_mut(), two, readers)
            );
            let settled = [one?, two?].concat();
            for (candidate, settled) in work[done..].iter().zip(&settled) {
                tally.count(candidate, &settled.verdict);
                if let Some(line) = self.line(candidate.id, settled) {
                    progress.suspend(|| or_unread(writeln!(io::stdout(), "{line}")))?;
                }
            }
            done += settled.len();
            progress.set_position(done as u64);
            progress.set_message(format!("{} not applied", tally.failures()));
            if let Some(rate) = self.rate {
                let due =
                    Duration::from_secs(1).saturating_mul(u32::try_from(done).unwrap_or(u32::MAX)) / rate;
                tokio::time::sleep(due.saturating_sub(started.elapsed())).await;
            }
        }
        progress.finish_and_clear();
        let endpoints: Vec<&str> = tally.endpoints.iter().map(String::as_str).collect();
        write_applied(&mut ops.connection, &endpoints).await?;
        self.sum_up(&mut ops.connection, &tally, work.len() - done).await
    }

    /// The next batches, from the front of what is left; the second one is empty unless there may be two.
    fn batches(&self, left: &[Candidate], tally: &Tally, two: bool) -> [Vec<i64>; 2] {
        let first = self.batch(left, tally);
        let second = if two { self.batch(&left[first.len()..], tally) } else { Vec::new() };
        [first, second]
    }

    async fn settle(
        &self,
        connection: Option<&mut PgConnection>,
        ids: &[i64],
        readers: &Readers,
    ) -> anyhow::Result<Vec<Settled>> {
        let (Some(connection), false) = (connection, ids.is_empty()) else { return Ok(Vec::new()) };
        let again = Again::Reprocess { operator: &self.operator.operator, reason: self.reason.as_deref() };
        let batch = Batch::Recorded { ids, again, readers };
        settle(connection, batch, SystemTime::now().into())
            .await
            .context("the database connection failed; what was committed stands: run the command again")
    }

    fn progress(&self, length: usize) -> anyhow::Result<ProgressBar> {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {per_sec} {eta} left, {msg}")?;
        let progress = ProgressBar::new(length as u64).with_style(style);
        if self.output.json || !io::stderr().is_terminal() {
            progress.set_draw_target(ProgressDrawTarget::hidden());
        }
        Ok(progress)
    }

    /// What is said of an event: for people, only if it was not applied.
    fn line(&self, id: i64, settled: &Settled) -> Option<String> {
        let trouble = settled.verdict.trouble();
        if self.output.json {
            let line = json!({
                "id": id,
                "outcome": outcome(settled),
                "error_kind": trouble.map(|trouble| trouble.kind.name()),
                "error": trouble.map(|trouble| &trouble.text),
            });
            return Some(line.to_string());
        }
        match (&settled.verdict, trouble) {
            (verdict, Some(trouble)) => {
                let (name, kind, text) = (verdict.name(), trouble.kind.name(), plain(&trouble.text));
                Some(format!("{id}  {name}  {kind}: {text}"))
            }
            (Verdict::Undecided(reason), None) => Some(format!("{id}  undecided  {}", plain(reason))),
            _ => None,
        }
    }

    async fn sum_up(
        &self,
        connection: &mut PgConnection,
        tally: &Tally,
        not_run: usize,
    ) -> anyhow::Result<bool> {
        let still = Filter {
            ids: tally.passed_over.clone(),
            statuses: vec![Status::Failed, Status::Dead],
            ..Filter::default()
        };
        let in_other_hands = match tally.passed_over.is_empty() {
            true => 0,
            false => candidates(connection, &still, None).await?.len(),
        };
        let settled_meanwhile = tally.passed_over.len() - in_other_hands;
        let parts = [
            (tally.applied, "applied"),
            (tally.ignored, "ignored"),
            (tally.not_applied, "not applied"),
            (tally.undecided, "undecided"),
            (settled_meanwhile as u64, "settled by somebody else"),
            (in_other_hands as u64, "in other hands"),
            (not_run as u64, "not run"),
        ];
        if self.output.json {
            let summary: serde_json::Map<_, _> =
                parts.iter().map(|(count, name)| (name.replace(' ', "_"), json!(count))).collect();
            or_unread(writeln!(io::stdout(), "{}", json!({ "summary": summary })))?;
        } else {
            let parts = parts.iter().enumerate().filter(|(at, (count, _))| *at == 0 || *count > 0);
            let parts: Vec<String> = parts.map(|(_, (count, name))| format!("{count} {name}")).collect();
            or_unread(writeln!(io::stdout(), "{}", parts.join(", ")))?;
        }
        Ok(tally.failures() == 0 && in_other_hands == 0 && not_run == 0)
    }

    async fn dry_run(
        &self,
        connection: &mut PgConnection,
        work: &[Candidate],
        readers: &Readers,
    ) -> anyhow::Result<bool> {
        let ids: Vec<i64> = work.iter().map(|candidate| candidate.id).collect();
        let again = Again::Reprocess { operator: &self.operator.operator, reason: self.reason.as_deref() };
        let mut tally = Tally::default();
        let mut all: Vec<(i64, Settled)> = Vec::new();
        let until = Instant::now() + DRY_RUN_MAX;
        let mut rehearsal = Rehearsal::begin(connection).await?;
        while all.len() < work.len() && Instant::now() < until {
            let ids = self.batch(&work[all.len()..], &tally);
            if ids.is_empty() {
                break;
            }
            let batch = Batch::Recorded { ids: &ids, again, readers };
            let settled = rehearsal.settle(batch, SystemTime::now().into()).await?;
            for (candidate, settled) in work[all.len()..].iter().zip(settled) {
                tally.count(candidate, &settled.verdict);
                all.push((candidate.id, settled));
            }
        }
        rehearsal.end().await?;
        let named = Filter { ids: ids[..all.len()].to_vec(), ..Filter::default() };
        let limit = u32::try_from(all.len().max(1)).unwrap_or(u32::MAX);
        let entries = page(connection, &named, None, limit).await?;
        let entries: HashMap<i64, Entry> = entries.into_iter().map(|entry| (entry.id, entry)).collect();
        for (id, settled) in &all {
            self.print_outlook(*id, entries.get(id), settled)?;
        }
        self.sum_up_dry_run(&tally, all.len(), work.len())
    }

    fn print_outlook(&self, id: i64, entry: Option<&Entry>, settled: &Settled) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.output.json {
            let trouble = settled.verdict.trouble();
            let line = json!({
                "id": id,
                "event_id": entry.map(|entry| &entry.event_id),
                "would_be": outcome(settled),
                "error_kind": trouble.map(|trouble| trouble.kind.name()),
                "error": trouble.map(|trouble| &trouble.text),
                "differences": settled.differences.iter().map(difference_json).collect::<Vec<_>>(),
            });
            return writeln!(out, "{line}");
        }
        let (endpoint, event_id, kind) =
            entry.map_or(("", "", ""), |entry| (&entry.endpoint, &entry.event_id, &entry.event_type));
        let (event_id, kind) = (plain(event_id), plain(kind));
        writeln!(out, "{id}  {endpoint}  {event_id}  {kind}  {}", plain(&outlook(settled)))?;
        for difference in &settled.differences {
            writeln!(out, "    {}", plain(&difference_line(difference)))?;
        }
        Ok(())
    }

    fn sum_up_dry_run(&self, tally: &Tally, tried: usize, found: usize) -> anyhow::Result<bool> {
        let (applied, failures) = (tally.applied, tally.failures());
        if self.output.json {
            let summary = json!({
                "would_be_applied": applied, "would_be_ignored": tally.ignored,
                "would_not_be_applied": failures, "passed_over": tally.passed_over.len(),
                "not_tried": found - tried,
            });
            writeln!(io::stdout(), "{}", json!({ "dry_run": summary }))?;
        } else {
            write!(io::stdout(), "dry run: {applied} would be applied, {failures} would not")?;
            if tally.ignored > 0 {
                write!(io::stdout(), ", {} would be ignored", tally.ignored)?;
            }
            if !tally.passed_over.is_empty() {
                write!(io::stdout(), ", {} are in other hands", tally.passed_over.len())?;
            }
            writeln!(io::stdout(), "; nothing was changed")?;
            if tried < found {
                let left = found - tried;
                let why = match self.stop_after_failures {
                    Some(stop) if failures >= u64::from(stop) => "as --stop-after-failures says",
                    _ => "so as not to hold locks for longer: narrow the filter, or use --limit",
                };
                writeln!(io::stdout(), "{left} more were not tried, {why}")?;
            }
        }
        Ok(failures == 0 && tried == found && tally.passed_over.is_empty())
    }
}

/// How an event is run that is neither failed nor dead.
fn way_in(entry: &Entry) -> &'static str {
    match entry.status.as_str() {
        "ignored" => "; --status ignored runs such events, too",
        "discarded" => "; `wharf inbox undiscard` makes it a dead letter again",
        _ => "",
    }
}

fn outcome(settled: &Settled) -> &'static str {
    match settled.verdict {
        Verdict::Duplicate => "passed_over",
        _ => settled.verdict.name(),
    }
}
