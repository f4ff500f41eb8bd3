//! Are the bound functions there, of the right shape, and may Wharf call them? Asked of the live database.

use std::fmt;

use sqlx::PgConnection;

use crate::effect::{Effect, EffectRule};

/// What is wrong with a bound function, and the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectProblem {
    /// The function, as the configuration names it.
    pub call: String,
    /// What is wrong, and what to do.
    pub text: String,
}

impl fmt::Display for EffectProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.text)
    }
}

/// A function of the name that is looked for.
#[derive(Debug, sqlx::FromRow)]
struct Found {
    arguments: String,
    result: Option<String>,
    kind: String,
    returns_set: bool,
    may_use_schema: bool,
    may_execute: bool,
    role: String,
}

/// Checks every function that a rule names, once.
pub async fn check(
    connection: &mut PgConnection,
    rules: &[EffectRule],
) -> Result<Vec<EffectProblem>, sqlx::Error> {
    let mut problems = Vec::new();
    let mut seen: Vec<&Effect> = Vec::new();
    for effect in rules.iter().map(|rule| &rule.effect) {
        if seen.iter().any(|other| other.call == effect.call) {
            continue;
        }
        seen.push(effect);
        let found: Vec<Found> = sqlx::query_as(
            "select pg_get_function_identity_arguments(proc.oid) as arguments,
                    pg_get_function_result(proc.oid) as result, proc.prokind::text as kind,
                    proc.proretset as returns_set,
                    has_schema_privilege(space.oid, 'usage') as may_use_schema,
                    has_function_privilege(proc.oid, 'execute') as may_execute, current_user::text as role
             from pg_proc proc join pg_namespace space on space.oid = proc.pronamespace
             where space.nspname = $1 and proc.proname = $2
             order by proc.oid",
        )
        .bind(&effect.call.0)
        .bind(&effect.call.1)
        .fetch_all(&mut *connection)
        .await?;
        let problem = problem_of(effect, &found);
        problems.extend(problem.map(|text| EffectProblem { call: effect.name(), text }));
    }
    Ok(problems)
}

fn problem_of(effect: &Effect, found: &[Found]) -> Option<String> {
    let name = effect.name();
    // An argument may have a name: `change jsonb`.
    let fits = |found: &&Found| {
        found.arguments.split(' ').next_back() == Some("jsonb") && !found.arguments.contains(',')
    };
    let Some(function) = found.iter().find(fits) else {
        return Some(match found.first() {
            None => format!("there is no such function; create function {name}(change jsonb)"),
            Some(other) => format!("it takes ({}); it must take one jsonb", other.arguments),
        });
    };
    if function.kind != "f" {
        return Some(
            "it is no plain function; a procedure could commit, so write it as a function".to_owned(),
        );
    }
    if function.returns_set || !matches!(function.result.as_deref(), Some("void" | "jsonb")) {
        let set = function.result.as_deref().unwrap_or_default();
        return Some(format!("it returns {set}; it must return void or jsonb"));
    }
    if !function.may_use_schema {
        return Some(format!(
            "{} may not use its schema; grant usage on schema {} to {0}",
            function.role, effect.call.0
        ));
    }
    if !function.may_execute {
        return Some(format!(
            "{} may not call it; grant execute on function {name}(jsonb) to {0}",
            function.role
        ));
    }
    None
}
