//! The search: levels of hypotheses, the nearest first. The first level in which something fits ends it.

use std::borrow::Cow;
use std::cell::Cell;
use std::iter;

use super::body::{EDITS, signed_empty};
use super::secret::Reading;
use super::setting::{Setting, worth_trying};
use super::{Candidate, Catalogue, Cause, Certainty, Finding, Fit, Suspect, clock};
use crate::provider::signature::{Claim, Key, SignatureRule};

/// So many bytes are hashed and rewritten at most: some seconds, at a body of any size.
const BUDGET_BYTES: u64 = 1 << 30;
/// What an attempt costs besides its body.
const ATTEMPT_BYTES: u64 = 512;

/// A body as it may have been signed.
struct Version<'a> {
    bytes: Cow<'a, [u8]>,
    causes: Vec<Cause>,
}

struct Search<'a> {
    own: &'a Candidate<'a>,
    others: &'a [Candidate<'a>],
    catalogue: &'a Catalogue,
    suspect: &'a Suspect<'a>,
    /// The request and the scheme as they are.
    as_is: Setting,
    /// One step away from that.
    twisted: Vec<Setting>,
    bytes_left: Cell<u64>,
}

/// What fits, and whether all was tried.
pub(super) fn search(
    own: &Candidate<'_>,
    others: &[Candidate<'_>],
    catalogue: &Catalogue,
    suspect: &Suspect<'_>,
) -> (Vec<Finding>, bool) {
    let as_is = Setting::of(&own.definition.signature, suspect.headers);
    let twisted = as_is.twisted();
    let bytes_left = Cell::new(BUDGET_BYTES);
    let search = Search { own, others, catalogue, suspect, as_is, twisted, bytes_left };
    let findings = Search::LEVELS.iter().map(|level| level(&search)).find(|findings| !findings.is_empty());
    (findings.unwrap_or_default(), search.bytes_left.get() > 0)
}

impl Search<'_> {
    /// From what is nearest to what is farthest: one thing wrong before two, our own secrets before others'.
    const LEVELS: [fn(&Self) -> Vec<Finding>; 12] = [
        Self::own_secrets_at_another_time,
        Self::own_secrets_with_other_headers_or_scheme,
        Self::own_secrets_read_otherwise,
        Self::own_secrets_with_another_body,
        Self::secrets_of_other_endpoints,
        Self::other_endpoints,
        Self::other_providers,
        Self::own_secrets_with_two_causes,
        Self::secrets_of_other_endpoints_and_one_cause_more,
        Self::other_endpoints_with_another_body,
        Self::own_secrets_with_a_body_edited_twice,
        Self::own_secrets_with_headers_or_scheme_twisted_twice,
    ];

    fn own_secrets_at_another_time(&self) -> Vec<Finding> {
        let mut findings = self.cross(&[&self.as_is], &self.own_secrets(), self.as_it_came());
        // What fits as it is and is at no wrong time can only be refused for having no body.
        let empty = findings.iter_mut().filter(|finding| finding.causes.is_empty());
        empty.for_each(|finding| finding.causes.push(signed_empty()));
        findings
    }

    fn own_secrets_with_other_headers_or_scheme(&self) -> Vec<Finding> {
        self.cross(&self.settings(), &self.own_secrets(), self.as_it_came())
    }

    fn own_secrets_read_otherwise(&self) -> Vec<Finding> {
        self.cross(&[&self.as_is], &self.own_secrets_otherwise(), self.as_it_came())
    }

    fn own_secrets_with_another_body(&self) -> Vec<Finding> {
        self.cross(&[&self.as_is], &self.own_secrets(), self.edited())
    }

    fn secrets_of_other_endpoints(&self) -> Vec<Finding> {
        self.cross(&[&self.as_is], &self.others_secrets(Reading::plain), self.as_it_came())
    }

    fn other_endpoints(&self) -> Vec<Finding> {
        self.each_other_endpoint(Self::as_it_came)
    }

    fn other_providers(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for definition in self.catalogue.iter().filter(|other| other.name != self.own.definition.name) {
            let name = &definition.name;
            let mut setting = Setting::of(&definition.signature, self.suspect.headers);
            let what = format!("it is signed as `{name}` signs");
            let way_out = format!("register it at an endpoint that has `provider = \"{name}\"`");
            setting.causes.push(Cause::new("other-provider", what, way_out));
            let readings: Vec<Reading<'_>> = iter::once(self.own)
                .chain(self.others)
                .flat_map(|candidate| plain_secrets(&definition.signature, candidate))
                .collect();
            findings.extend(self.cross(&[&setting], &readings, self.as_it_came()));
        }
        findings
    }

    fn own_secrets_with_two_causes(&self) -> Vec<Finding> {
        let (settings, otherwise) = (self.settings(), self.own_secrets_otherwise());
        let first = [
            self.cross(&settings, &otherwise, self.as_it_came()),
            self.cross(&[&self.as_is], &otherwise, self.edited()),
            self.cross(&settings, &self.own_secrets(), self.edited()),
        ];
        first.into_iter().find(|findings| !findings.is_empty()).unwrap_or_default()
    }

    fn secrets_of_other_endpoints_and_one_cause_more(&self) -> Vec<Finding> {
        let plain = self.others_secrets(Reading::plain);
        let otherwise = self.others_secrets(Reading::others);
        let first = [
            self.cross(&self.settings(), &plain, self.as_it_came()),
            self.cross(&[&self.as_is], &otherwise, self.as_it_came()),
            self.cross(&[&self.as_is], &plain, self.edited()),
        ];
        first.into_iter().find(|findings| !findings.is_empty()).unwrap_or_default()
    }

    fn other_endpoints_with_another_body(&self) -> Vec<Finding> {
        self.each_other_endpoint(Self::edited)
    }

    fn own_secrets_with_a_body_edited_twice(&self) -> Vec<Finding> {
        let twice = EDITS.iter().flat_map(|last| {
            let once = last.undo(self.suspect.body).into_iter();
            once.flat_map(move |once| {
                // An edit has its price, too, also where it changes nothing.
                EDITS.iter().take_while(|_| self.pay(self.suspect.body.len())).filter_map(move |first| {
                    let bytes = Cow::from(first.undo(&once)?);
                    Some(Version { bytes, causes: vec![first.cause(), last.cause()] })
                })
            })
        });
        self.cross(&[&self.as_is], &self.own_secrets(), twice)
    }

    fn own_secrets_with_headers_or_scheme_twisted_twice(&self) -> Vec<Finding> {
        let twice: Vec<Setting> = self.twisted.iter().flat_map(Setting::twisted).collect();
        self.cross(&worth_trying(&self.as_is, &twice), &self.own_secrets(), self.as_it_came())
    }

    /// Every other endpoint with its own scheme and its own secrets.
    fn each_other_endpoint<'a, V: Iterator<Item = Version<'a>>>(
        &'a self,
        versions: impl Fn(&'a Self) -> V,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        for other in self.others {
            let (name, provider, own) = (other.endpoint, &other.definition.name, self.own.endpoint);
            let mut setting = Setting::of(&other.definition.signature, self.suspect.headers);
            let what = format!("it is signed as `{provider}` signs, and is meant for the endpoint `{name}`");
            let way_out =
                format!("register https://…/webhooks/{name} at the provider instead of /webhooks/{own}");
            setting.causes.push(Cause::new("other-endpoint", what, way_out));
            let readings = plain_secrets(&other.definition.signature, other);
            findings.extend(self.cross(&[&setting], &readings, versions(self)));
        }
        findings
    }

    fn settings(&self) -> Vec<&Setting> {
        worth_trying(&self.as_is, &self.twisted)
    }

    fn own_secrets(&self) -> Vec<Reading<'_>> {
        plain_secrets(&self.as_is.rule, self.own)
    }

    fn own_secrets_otherwise(&self) -> Vec<Reading<'_>> {
        let secrets = self.own.secrets.iter();
        secrets.flat_map(|secret| Reading::others(&self.as_is.rule, secret, self.own.endpoint)).collect()
    }

    /// The secrets of the other endpoints, read for our own scheme.
    fn others_secrets<'a, R: IntoIterator<Item = Reading<'a>>>(
        &'a self,
        read: impl Fn(&SignatureRule, &'a super::NamedSecret<'a>, &'a str) -> R,
    ) -> Vec<Reading<'a>> {
        let mut readings = Vec::new();
        for other in self.others {
            let (name, own) = (other.endpoint, self.own.endpoint);
            for secret in &other.secrets {
                for mut reading in read(&self.as_is.rule, secret, name) {
                    let what = format!(
                        "it is signed with {}, the secret of the endpoint `{name}`",
                        secret.reference
                    );
                    let way_out = format!(
                        "register https://…/webhooks/{name} at the provider instead of /webhooks/{own}, or write \
                         \"{}\" into the secrets of `{own}`",
                        secret.reference
                    );
                    reading.causes.push(Cause::new("other-endpoints-secret", what, way_out));
                    readings.push(reading);
                }
            }
        }
        readings
    }

    fn as_it_came(&self) -> impl Iterator<Item = Version<'_>> {
        iter::once(Version { bytes: Cow::from(self.suspect.body), causes: Vec::new() })
    }

    fn edited(&self) -> impl Iterator<Item = Version<'_>> {
        EDITS.iter().take_while(|_| self.pay(self.suspect.body.len())).filter_map(|edit| {
            let bytes = Cow::from(edit.undo(self.suspect.body)?);
            Some(Version { bytes, causes: vec![edit.cause()] })
        })
    }

    /// Tries all combinations, and ends at the first body and setting that any secret fits.
    fn cross<'a>(
        &self,
        settings: &[&Setting],
        readings: &[Reading<'_>],
        versions: impl Iterator<Item = Version<'a>>,
    ) -> Vec<Finding> {
        if settings.is_empty() || readings.is_empty() {
            return Vec::new();
        }
        for version in versions {
            for setting in settings {
                let findings = self.fitting(setting, readings, &version);
                if !findings.is_empty() {
                    return findings;
                }
            }
        }
        Vec::new()
    }

    /// The secrets that fit under one hypothesis.
    fn fitting(&self, setting: &Setting, readings: &[Reading<'_>], version: &Version<'_>) -> Vec<Finding> {
        let lines = setting.lines();
        let Ok(claim) = Claim::of(&setting.rule, &lines, &version.bytes) else { return Vec::new() };
        let fits = |reading: &&Reading<'_>| {
            self.pay(version.bytes.len())
                && claim.is_signed_with(&Key::of_bytes(setting.rule.algorithm, &reading.bytes))
        };
        let found = readings.iter().filter(fits).map(|reading| {
            let clock = clock::causes(
                setting.rule.timestamp.as_ref(),
                claim.written_at,
                &version.bytes,
                self.suspect.at,
            );
            let causes = [&setting.causes, &reading.causes, &version.causes, &clock];
            let secret = reading.secret.reference.to_owned();
            Finding {
                causes: causes.into_iter().flatten().cloned().collect(),
                fit: Some(Fit { secret, endpoint: reading.endpoint.to_owned() }),
                certainty: Certainty::Proof,
            }
        });
        found.collect()
    }

    /// Takes an attempt's cost from what is left; false when that is used up.
    fn pay(&self, body_bytes: usize) -> bool {
        let cost = ATTEMPT_BYTES + u64::try_from(body_bytes).unwrap_or(u64::MAX);
        self.bytes_left.set(self.bytes_left.get().saturating_sub(cost));
        self.bytes_left.get() > 0
    }
}

fn plain_secrets<'a>(rule: &SignatureRule, candidate: &'a Candidate<'a>) -> Vec<Reading<'a>> {
    let secrets = candidate.secrets.iter();
    secrets.filter_map(|secret| Reading::plain(rule, secret, candidate.endpoint)).collect()
}
