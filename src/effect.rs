//! Effects: changes that go to a company's own SQL functions. docs/EFFECTS.md is the contract.

use std::collections::HashMap;

/// Whether Wharf's own books take a change too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// No: the function alone.
    Instead,
    /// Yes, first; the function is given the result.
    Also,
}

/// A function that a change is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// Its schema and name, each without quotes.
    pub call: (String, String),
    /// Whether the books take the change too.
    pub mode: Mode,
}

impl Effect {
    /// The function as SQL writes it.
    pub fn sql_name(&self) -> String {
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        format!("{}.{}", quoted(&self.call.0), quoted(&self.call.1))
    }

    /// The function as people write it.
    pub fn name(&self) -> String {
        format!("{}.{}", self.call.0, self.call.1)
    }
}

/// The effects of one endpoint, by the change's name. A change that is not here goes to the books.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects(HashMap<String, Effect>);

impl Effects {
    /// Whether all changes go to the books.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The effect of a change.
    pub fn of(&self, change: &str) -> Option<&Effect> {
        self.0.get(change)
    }

    /// Whether the books take a change.
    pub fn leave_to_the_books(&self, change: &str) -> bool {
        self.of(change).is_none_or(|effect| effect.mode == Mode::Also)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Effect)> {
        self.0.iter().map(|(change, effect)| (change.as_str(), effect))
    }
}

impl FromIterator<(String, Effect)> for Effects {
    fn from_iter<I: IntoIterator<Item = (String, Effect)>>(effects: I) -> Self {
        Self(effects.into_iter().collect())
    }
}

/// An `[[effect]]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectRule {
    /// The change's name.
    pub change: String,
    /// The function, and whether the books take the change too.
    pub effect: Effect,
    /// Only this tenant's events.
    pub tenant: Option<String>,
    /// Only this endpoint's events.
    pub endpoint: Option<String>,
}

impl EffectRule {
    /// How closely it is meant for an endpoint of a tenant; `None`: not at all.
    fn fits(&self, endpoint: &str, tenant: &str) -> Option<u8> {
        let named = |own: &Option<String>, other: &str| own.as_deref().map(|own| own == other);
        match (named(&self.endpoint, endpoint), named(&self.tenant, tenant)) {
            (Some(false), _) | (_, Some(false)) => None,
            (Some(true), _) => Some(2),
            (None, Some(true)) => Some(1),
            (None, None) => Some(0),
        }
    }

    /// The effects of an endpoint: of the rules that fit, for each change the closest.
    pub fn for_endpoint(rules: &[Self], endpoint: &str, tenant: &str) -> Effects {
        let mut fitting: Vec<(u8, &Self)> =
            rules.iter().filter_map(|rule| Some((rule.fits(endpoint, tenant)?, rule))).collect();
        fitting.sort_by_key(|(closeness, _)| *closeness);
        // A closer one replaces what came before it.
        fitting.into_iter().map(|(_, rule)| (rule.change.clone(), rule.effect.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(function: &str, tenant: Option<&str>, endpoint: Option<&str>) -> EffectRule {
        EffectRule {
            change: "invoice.paid".into(),
            effect: Effect { call: ("erp".into(), function.into()), mode: Mode::Instead },
            tenant: tenant.map(str::to_owned),
            endpoint: endpoint.map(str::to_owned),
        }
    }

    #[test]
    fn the_closest_rule_counts() {
        let rules = [
            rule("of_endpoint", None, Some("stripe")),
            rule("of_all", None, None),
            rule("of_tenant", Some("acme"), None),
        ];
        let of = |endpoint, tenant| {
            let effects = EffectRule::for_endpoint(&rules, endpoint, tenant);
            effects.of("invoice.paid").map(|effect| effect.call.1.clone()).unwrap_or_default()
        };
        assert_eq!(of("stripe", "acme"), "of_endpoint");
        assert_eq!(of("shopify", "acme"), "of_tenant");
        assert_eq!(of("shopify", "other"), "of_all");
        assert!(EffectRule::for_endpoint(&rules[..1], "shopify", "acme").is_empty());
    }
}
