//! Searches by index find what reading all of the inbox finds, whatever the filter.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use wharf::inbox::select::{Filter, Status, candidates, groups, page};
use wharf::timestamp::Timestamp;

use crate::support::Database;

const EVENTS: i64 = 3000;
/// The events came in one a minute from here on.
const FROM: i64 = 1_764_590_400;

const STATUSES: [Status; 5] =
    [Status::Processed, Status::Ignored, Status::Failed, Status::Dead, Status::Discarded];
const ENDPOINTS: [&str; 4] = ["a", "b", "c", "nowhere"];
const PROVIDERS: [&str; 3] = ["p", "q", "nobody"];
const TYPES: [&str; 5] = ["paid", "refunded", "rare", "", "never"];
const KINDS: [&str; 3] = ["invoice_not_found", "unreadable", "panic"];

fn fill(database: &Database) {
    database.execute(&format!(
        "insert into webhook_inbox
           (tenant_id, endpoint, provider, event_id, event_type, status, attempts, last_error, error_kind, fingerprint,
            about, headers, body, received_at, settled_at, dead_lettered_at, next_attempt_at)
         select tenant.id, endpoint, provider, 'evt_' || n, event_type, status, 1,
                case when wrong then 'it went wrong' end, case when wrong then kind end,
                case when wrong then left(md5(endpoint || event_type || kind), 10) end,
                case when wrong then array['N-' || n % 7, 'M-' || n % 11] end,
                '{{}}', '', to_timestamp({FROM} + n * 60), case when status <> 'failed' then now() end,
                case when status = 'dead' then now() end, case when status = 'failed' then now() end
         from tenant, generate_series(1, {EVENTS}) n
         cross join lateral (select hashint8(n) & 1023 as h, hashint8(n + 999999) & 1023 as k) as r
         cross join lateral (
           select (array['a', 'b', 'c'])[1 + h % 3] as endpoint, (array['p', 'q', 'p'])[1 + h % 3] as provider,
                  case when n % 500 = 3 then 'rare' else (array['paid', 'refunded', ''])[1 + k % 3] end as event_type,
                  (array['processed', 'ignored', 'failed', 'dead', 'processed', 'processed', 'dead'])[1 + h % 7]
                    as usual,
                  (array['invoice_not_found', 'unreadable'])[1 + k % 2] as kind) as told
         cross join lateral (select case when n % 97 = 5 then 'discarded' else usual end as status) as s
         cross join lateral (select status in ('failed', 'dead', 'discarded') as wrong) as w"
    ));
}

fn texts(values: &[String]) -> Vec<&str> {
    values.iter().map(String::as_str).collect()
}

/// Reads all of it, by the letter of the filter.
async fn by_reading(connection: &mut PgConnection, filter: &Filter) -> Vec<i64> {
    let mut sql = "select id from webhook_inbox where true".to_owned();
    let any = |sql: &mut String, column: &str, values: Vec<&str>| {
        if !values.is_empty() {
            sql.push_str(&format!(" and {column} in ('{}')", values.join("', '")));
        }
    };
    let by_error = !filter.error_kinds.is_empty() || filter.fingerprint.is_some();
    let statuses = match filter.statuses.as_slice() {
        [] if by_error => vec!["failed", "dead", "discarded"],
        given => given.iter().map(|status| status.name()).collect(),
    };
    any(&mut sql, "status", statuses);
    any(&mut sql, "endpoint", texts(&filter.endpoints));
    any(&mut sql, "provider", texts(&filter.providers));
    any(&mut sql, "event_type", texts(&filter.types));
    any(&mut sql, "error_kind", texts(&filter.error_kinds));
    any(&mut sql, "fingerprint", texts(filter.fingerprint.as_slice()));
    any(&mut sql, "event_id", texts(filter.event_id.as_slice()));
    if let Some(number) = &filter.number {
        sql.push_str(&format!(" and '{number}' = any(about) and status in ('failed', 'dead', 'discarded')"));
    }
    if let Some(since) = filter.since {
        sql.push_str(&format!(" and received_at >= '{since}'"));
    }
    if let Some(until) = filter.until {
        sql.push_str(&format!(" and received_at <= '{until}'"));
    }
    sql.push_str(" order by id desc");
    let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(connection).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

fn some(values: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    let most = values.len();
    prop_oneof![
        2 => Just(Vec::new()),
        1 => subsequence(values, 1..=most).prop_map(|some| some.into_iter().map(str::to_owned).collect()),
    ]
}

fn maybe<T: Clone + std::fmt::Debug + 'static>(
    often: u32,
    value: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Option<T>> {
    prop_oneof![often => Just(None), 1 => value.prop_map(Some)]
}

fn filter() -> impl Strategy<Value = Filter> {
    let moment =
        || (-60..EVENTS + 60).prop_map(|minute| Timestamp::from_seconds(FROM + minute * 60).unwrap());
    let statuses = prop_oneof![
        1 => Just(Vec::new()),
        2 => subsequence(STATUSES.to_vec(), 1..=5),
    ];
    let names = (some(&ENDPOINTS), some(&PROVIDERS), some(&TYPES), some(&KINDS));
    let event_id = maybe(8, (1..EVENTS + 10).prop_map(|n| format!("evt_{n}")));
    let number = maybe(8, select(vec!["N-3", "M-4", "X"]).prop_map(str::to_owned));
    (statuses, names, event_id, number, maybe(2, moment()), maybe(2, moment())).prop_map(
        |(statuses, (endpoints, providers, types, error_kinds), event_id, number, since, until)| Filter {
            statuses,
            endpoints,
            providers,
            types,
            error_kinds,
            event_id,
            number,
            since,
            until,
            ..Filter::default()
        },
    )
}

#[test]
fn whatever_the_filter_a_search_finds_what_reading_all_finds() {
    let database = Database::new();
    fill(&database);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let connect = || runtime.block_on(wharf::postgres::connect(&database.options)).unwrap();
    let connections = std::cell::RefCell::new((connect(), connect()));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(250));
    let result = runner.run(&filter(), |filter| {
        let (reading, searching) = &mut *connections.borrow_mut();
        runtime.block_on(async {
            let expected = by_reading(reading, &filter).await;
            let newest = page(searching, &filter, None, 20).await.unwrap();
            let newest: Vec<i64> = newest.iter().map(|entry| entry.id).collect();
            prop_assert_eq!(&newest[..], &expected[..expected.len().min(20)]);
            if let Some(last) = newest.last() {
                let next = page(searching, &filter, Some(*last), 7).await.unwrap();
                let next: Vec<i64> = next.iter().map(|entry| entry.id).collect();
                let after: Vec<i64> = expected.iter().copied().skip(newest.len()).take(7).collect();
                prop_assert_eq!(next, after);
            }
            let all = candidates(searching, &filter, None).await.unwrap();
            prop_assert!(all.iter().map(|candidate| candidate.id).eq(expected.iter().rev().copied()));
            let oldest = candidates(searching, &filter, Some(5)).await.unwrap();
            prop_assert!(
                oldest.iter().map(|candidate| candidate.id).eq(expected.iter().rev().copied().take(5))
            );
            let grouped = groups(searching, &filter).await.unwrap();
            let mut trouble = filter.clone();
            trouble.statuses.retain(|status| [Status::Failed, Status::Dead].contains(status));
            if trouble.statuses.is_empty() {
                trouble.statuses = vec![Status::Failed, Status::Dead];
            }
            let expected = by_reading(reading, &trouble).await;
            prop_assert_eq!(grouped.iter().map(|group| group.events).sum::<i64>(), expected.len() as i64);
            for group in &grouped {
                let of_group = Filter { fingerprint: Some(group.fingerprint.clone()), ..trouble.clone() };
                let expected = by_reading(reading, &of_group).await;
                prop_assert_eq!((group.events, group.sample_id), (expected.len() as i64, expected[0]));
            }
            Ok(())
        })
    });
    result.unwrap();
}

#[test]
fn a_search_never_reads_all_of_the_inbox() {
    let database = Database::new();
    fill(&database);
    let scans = "select seq_scan from pg_stat_user_tables where relname = 'webhook_inbox'";
    let before: i64 = database.rows(scans).parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = wharf::postgres::connect(&database.options).await.unwrap();
        for filter in [
            Filter::default(),
            Filter { statuses: vec![Status::Dead], ..Filter::default() },
            Filter { types: vec!["rare".into()], ..Filter::default() },
            Filter { number: Some("N-3".into()), ..Filter::default() },
            Filter { providers: vec!["q".into()], event_id: Some("evt_9".into()), ..Filter::default() },
            Filter { since: Timestamp::from_seconds(FROM + 60_000), ..Filter::default() },
        ] {
            page(&mut connection, &filter, None, 10).await.unwrap();
            groups(&mut connection, &filter).await.unwrap();
        }
        sqlx::Connection::close(connection).await.unwrap();
    });
    assert_eq!(database.rows(scans), before.to_string());
    // The counter does count.
    database.execute("set enable_indexscan = off; set enable_bitmapscan = off; select from webhook_inbox");
    database.wait_for("the counter", scans, &(before + 1).to_string());
}
