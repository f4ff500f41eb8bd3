//! What looks personal: by the name of its key, or by its shape.

// `core`, not the standard library's module of that name: an address is a value, not a socket.
use core::net::{Ipv4Addr, Ipv6Addr};
use std::collections::BTreeMap;
use std::ops::Range;

use super::Kind;
use super::stand_in::Telling;

/// The words of a key: `firstName`, `first-name` and `First_Name` are the same two.
fn words_of(key: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_lower = false;
    for character in key.chars() {
        if !character.is_alphanumeric() || (character.is_uppercase() && after_lower) {
            words.push(String::new());
        }
        if character.is_alphanumeric() {
            words.last_mut().expect("there is always one").extend(character.to_lowercase());
        }
        after_lower = character.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Keys that mean the same wherever they stand, by their last words.
const KEYS: [(Kind, &[&str]); 13] = [
    (Kind::Ip, &["ip", "ip_address", "ipaddress", "ip_addr", "remote_addr"]),
    (Kind::Email, &["email", "e_mail", "mail", "email_address", "emailaddress"]),
    (
        Kind::Phone,
        &[
            "phone",
            "phone_number",
            "phonenumber",
            "mobile",
            "mobile_number",
            "telephone",
            "tel",
            "fax",
            "cell",
            "msisdn",
            "whatsapp",
        ],
    ),
    (
        Kind::Person,
        &[
            "first_name",
            "firstname",
            "last_name",
            "lastname",
            "middle_name",
            "full_name",
            "fullname",
            "given_name",
            "family_name",
            "maiden_name",
            "surname",
            "nickname",
            "cardholder",
            "cardholder_name",
            "holder_name",
            "customer_name",
            "buyer_name",
            "contact_name",
            "recipient_name",
            "recipient",
            "billing_name",
            "customer_signature",
            "shipping_name",
            "sender_name",
            "receiver_name",
            "consignee",
            "username",
            "user_name",
            "attention",
            "attention_name",
            "verified_name",
        ],
    ),
    (
        Kind::Street,
        &[
            "address1",
            "address2",
            "address3",
            "address_1",
            "address_2",
            "address_3",
            "address_line1",
            "address_line2",
            "address_line_1",
            "address_line_2",
            "street",
            "street1",
            "street2",
            "street_address",
            "house_number",
            "address",
        ],
    ),
    (Kind::City, &["city", "town", "locality", "suburb"]),
    (Kind::PostalCode, &["zip", "zip_code", "zipcode", "postal_code", "postalcode", "postcode", "plz"]),
    (Kind::Coordinate, &["latitude", "longitude", "lat", "lng"]),
    (Kind::Card, &["card_number", "cardnumber", "pan"]),
    (Kind::CardEnd, &["last4", "last_four", "last_4"]),
    (Kind::Account, &["iban", "account_number", "routing_number", "sort_code"]),
    (
        Kind::Token,
        &[
            "token",
            "secret",
            "password",
            "passwd",
            "passphrase",
            "authorization",
            "api_key",
            "apikey",
            "access_key",
            "private_key",
            "secret_key",
            "credential",
            "credentials",
            "cookie",
            "fingerprint",
            "cvc",
            "cvv",
            "pin",
            "signature",
            "jwt",
            "ssn",
            "tax_id",
            "vat_number",
            "vat_id",
            "national_id",
            "passport",
            "passport_number",
        ],
    ),
    (Kind::Date, &["date_of_birth", "dob", "birthday", "birthdate", "birth_date"]),
];

/// Keys of free text that customers and clerks write.
const FREE_TEXT: [&str; 9] = [
    "note",
    "notes",
    "comment",
    "comments",
    "gift_message",
    "instructions",
    "user_agent",
    "special_instructions",
    "delivery_note",
];

/// Keys that are personal where what they belong to is a person or an address.
const KEYS_OF_PEOPLE: [(Kind, &[&str]); 4] = [
    (Kind::Person, &["name", "first", "last", "given", "family"]),
    (Kind::Company, &["company", "company_name"]),
    (Kind::Street, &["line1", "line2", "line3", "line_1", "line_2"]),
    (Kind::Region, &["province", "state", "county", "region"]),
];

const PEOPLE: [&str; 22] = [
    "address",
    "addresses",
    "customer",
    "customers",
    "billing",
    "shipping",
    "recipient",
    "sender",
    "buyer",
    "contact",
    "person",
    "user",
    "owner",
    "cardholder",
    "card",
    "receiver",
    "consignee",
    "payer",
    "destination",
    "individual",
    "ship",
    "bill",
];

/// `shipping_lines` are prices, `shipping_carrier` is a firm.
const NOT_PEOPLE: [&str; 9] =
    ["line", "lines", "method", "methods", "rate", "rates", "carrier", "options", "zone"];

/// Whether what a member holds is a person or an address.
pub(super) fn is_of_people(key: &str) -> bool {
    let words = words_of(key);
    words.iter().any(|word| PEOPLE.contains(&word.as_str()))
        && !words.last().is_some_and(|word| NOT_PEOPLE.contains(&word.as_str()))
}

/// Whether a text that stands where a person would is a name: words without digits.
pub(super) fn is_name_of_person(key: &str, text: &str) -> bool {
    let is_word = |c: char| c.is_alphabetic() || c.is_whitespace() || ".,'’-".contains(c);
    is_of_people(key) && text.trim().contains(char::is_whitespace) && text.chars().all(is_word)
}

/// What a key says of its value; `of_people` if it belongs to a person or an address.
pub(super) fn kind_of_key(key: &str, of_people: bool) -> Option<Kind> {
    let words = words_of(key).join("_");
    let ends = |list: &[&str]| {
        list.iter()
            .any(|end| words.strip_suffix(end).is_some_and(|front| front.is_empty() || front.ends_with('_')))
    };
    let found = KEYS.iter().find(|(_, list)| ends(list)).map(|(kind, _)| *kind);
    let found = found.or_else(|| ends(&FREE_TEXT).then_some(Kind::Text));
    found.or_else(|| {
        let mut own = KEYS_OF_PEOPLE.iter().filter(|_| of_people);
        own.find(|(_, list)| list.contains(&words.as_str())).map(|(kind, _)| *kind)
    })
}

/// Whether a key names an identifier: those are long, full of digits, and often pass a check digit by chance.
pub(super) fn is_identifier(key: &str) -> bool {
    const IDENTIFIERS: [&str; 16] = [
        "id",
        "ids",
        "uuid",
        "guid",
        "gid",
        "sku",
        "number",
        "reference",
        "ref",
        "barcode",
        "upc",
        "ean",
        "gtin",
        "tracking",
        "code",
        "version",
    ];
    words_of(key).last().is_some_and(|word| IDENTIFIERS.contains(&word.as_str()))
}

/// Whether digits pass the check that card numbers have.
pub(super) fn passes_luhn(digits: &str) -> bool {
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(place, byte)| {
            let digit = u32::from(byte.wrapping_sub(b'0')) * if place % 2 == 1 { 2 } else { 1 };
            if digit > 9 { digit - 9 } else { digit }
        })
        .sum();
    sum.is_multiple_of(10)
}

/// The personal parts of a text, in order, none of which overlap.
pub(super) fn shapes(text: &str, is_identifier: bool, telling: &Telling) -> Vec<(Range<usize>, Kind)> {
    let mut found = Found { text, parts: BTreeMap::new() };
    found.secrets();
    found.urls();
    found.emails();
    found.telling(telling);
    found.accounts();
    found.words(is_identifier);
    if !is_identifier {
        found.cards();
    }
    found.phones(is_identifier);
    found.parts.into_iter().map(|(start, (end, kind))| (start..end, kind)).collect()
}

/// Beginnings that providers give their secrets.
const SECRETS: [&str; 20] = [
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "rk_test_",
    "whsec_",
    "shpat_",
    "shpca_",
    "shppa_",
    "shpss_",
    "ghp_",
    "gho_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "eyJ",
    "Bearer ",
    "bearer ",
    "Basic ",
];

struct Found<'t> {
    text: &'t str,
    /// By where they begin: where they end, and what they are.
    parts: BTreeMap<usize, (usize, Kind)>,
}

impl Found<'_> {
    fn add(&mut self, range: Range<usize>, kind: Kind) {
        let overlaps =
            self.parts.range(..range.end).next_back().is_some_and(|(_, (end, _))| *end > range.start);
        if !range.is_empty() && !overlaps {
            self.parts.insert(range.start, (range.end, kind));
        }
    }

    /// The longest pieces of the text that are made of some characters.
    fn runs(&self, of: impl Fn(char) -> bool) -> Vec<Range<usize>> {
        let mut runs = Vec::new();
        let mut start = None;
        for (at, character) in self.text.char_indices() {
            match (of(character), start) {
                (true, None) => start = Some(at),
                (false, Some(from)) => {
                    runs.push(from..at);
                    start = None;
                }
                _ => {}
            }
        }
        runs.extend(start.map(|from| from..self.text.len()));
        runs
    }

    fn before(&self, at: usize) -> Option<char> {
        self.text[..at].chars().next_back()
    }

    fn after(&self, at: usize) -> Option<char> {
        self.text[at..].chars().next()
    }

    fn secrets(&mut self) {
        let text = self.text;
        for beginning in SECRETS {
            let mut last = 0;
            for (at, _) in text.match_indices(beginning) {
                if at < last || self.before(at).is_some_and(is_token) {
                    continue;
                }
                // The scheme of an `Authorization` header says nothing.
                let start = if beginning.ends_with(' ') { at + beginning.len() } else { at };
                let more = |c: char| is_token(c) || matches!(c, '.' | '+' | '/' | '=' | '~');
                let end = text[start..].find(|c| !more(c)).map_or(text.len(), |length| start + length);
                last = end;
                if end >= start + 8 && (beginning != "eyJ" || text[start..end].contains('.')) {
                    self.add(start..end, Kind::Token);
                }
            }
        }
    }

    /// User and password of addresses, and parameters whose name or value is telling.
    fn urls(&mut self) {
        let text = self.text;
        for (at, _) in text.match_indices("://") {
            let start = at + 3;
            let rest = &text[start..];
            let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"'));
            if let Some(sign) = rest[..end.unwrap_or(rest.len())].rfind('@') {
                self.add(start..start + sign, Kind::Token);
            }
        }
        let is_form = !text.contains(char::is_whitespace);
        for (at, _) in text.match_indices('=') {
            let name = text[..at].rfind(|c: char| !is_token(c)).map_or(0, |last| last + 1);
            let name = (name..=at).find(|at| text.is_char_boundary(*at)).unwrap_or(at);
            let is_parameter = match self.before(name) {
                Some(before) => matches!(before, '?' | '&' | ';' | '#'),
                None => is_form,
            };
            if !is_parameter || name == at {
                continue;
            }
            let ends = |c: char| c.is_whitespace() || matches!(c, '&' | ';' | '#' | '?' | '"');
            let value = at + 1..text[at + 1..].find(ends).map_or(text.len(), |length| at + 1 + length);
            let own = &text[value.clone()];
            let key = &text[name..at];
            let is_key = matches!(key, "key" | "sig" | "auth" | "code" | "hmac");
            let by_key = kind_of_key(key, false).or_else(|| is_key.then_some(Kind::Token));
            let by_value =
                (own.len() >= 16 && switches(own) >= 4 && !is_identifier(key)).then_some(Kind::Token);
            if let Some(kind) = by_key.or(by_value) {
                self.add(value, kind);
            }
        }
    }

    fn emails(&mut self) {
        let text = self.text;
        for sign in ["@", "%40"] {
            for (at, _) in text.match_indices(sign) {
                let local = |c: char| c.is_alphanumeric() || "._%+'-!#$*^{}|~".contains(c);
                let start = text[..at].char_indices().rev().take_while(|(_, c)| local(*c)).last();
                let Some((start, _)) = start else { continue };
                let after = at + sign.len();
                let domain = |c: char| c.is_alphanumeric() || c == '.' || c == '-';
                let end = text[after..].find(|c| !domain(c)).map_or(text.len(), |length| after + length);
                let name = text[after..end].trim_end_matches(['.', '-']);
                let has_top = name.rsplit_once('.').is_some_and(|(front, top)| {
                    !front.is_empty() && top.chars().count() >= 2 && !top.bytes().all(|b| b.is_ascii_digit())
                });
                if has_top {
                    self.add(start..after + name.len(), Kind::Email);
                }
            }
        }
    }

    /// Values that were found to be personal elsewhere, as whole words, the longest first.
    fn telling(&mut self, telling: &Telling) {
        let mut found = Vec::new();
        for word in self.runs(char::is_alphanumeric) {
            for known in telling.by_first_word(&self.text[word.clone()]) {
                let Some(start) = word.start.checked_sub(known.word_at) else { continue };
                let end = start + known.value.len();
                if self.text.get(start..end) == Some(known.value.as_str())
                    && !self.before(start).is_some_and(char::is_alphanumeric)
                    && !self.after(end).is_some_and(char::is_alphanumeric)
                {
                    found.push((start..end, known.kind));
                }
            }
        }
        found.sort_by_key(|(range, _)| std::cmp::Reverse(range.len()));
        for (range, kind) in found {
            self.add(range, kind);
        }
    }

    /// Addresses of machines, and tokens that only a machine writes.
    fn words(&mut self, is_identifier: bool) {
        for run in self.runs(|c| c.is_ascii_digit() || c == '.') {
            let lone =
                !self.before(run.start).is_some_and(is_token) && !self.after(run.end).is_some_and(is_token);
            let address = self.text[run.clone()].trim_end_matches('.');
            if lone && address.parse::<Ipv4Addr>().is_ok() {
                self.add(run.start..run.start + address.len(), Kind::Ip);
            }
        }
        for run in self.runs(|c| c.is_ascii_hexdigit() || c == ':' || c == '.') {
            let address = self.text[run.clone()].trim_end_matches('.');
            let lone =
                !self.before(run.start).is_some_and(is_token) && !self.after(run.end).is_some_and(is_token);
            if lone && address.len() > 3 && address.parse::<Ipv6Addr>().is_ok() {
                self.add(run.start..run.start + address.len(), Kind::Ip);
            }
        }
        for run in self.runs(is_token) {
            let word = &self.text[run.clone()];
            if !is_identifier && word.len() >= 32 && !is_uuid(word) && switches(word) >= 8 {
                self.add(run, Kind::Token);
            }
        }
    }

    /// Account numbers, which people write in groups of four.
    fn accounts(&mut self) {
        let groups = self.runs(|c| c.is_ascii_alphanumeric());
        for (place, first) in groups.iter().enumerate() {
            if self.before(first.start).is_some_and(is_token) {
                continue;
            }
            let mut digits = String::new();
            let mut end = None;
            for (group, before) in groups[place..].iter().zip(std::iter::once(first).chain(&groups[place..]))
            {
                let is_next = group == first || &self.text[before.end..group.start] == " ";
                if !is_next || digits.len() + group.len() > IBAN_LENGTH_MAX {
                    break;
                }
                digits.push_str(&self.text[group.clone()]);
                if is_iban(&digits) {
                    end = Some(group.end);
                }
            }
            if let Some(end) = end {
                self.add(first.start..end, Kind::Account);
            }
        }
    }

    /// Runs of digits and what people put between them; what is part of a word is cut off.
    fn digit_runs(&self) -> Vec<Range<usize>> {
        let glued = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '/');
        let is_open = |c: char| c == ' ' || c == '(' || c == '\u{a0}';
        let mut lone = Vec::new();
        for mut run in self.runs(|c| c.is_ascii_digit() || " +-.()\u{a0}".contains(c)) {
            if glued(self.before(run.start)) {
                let Some(open) = self.text[run.clone()].find(is_open) else { continue };
                run.start += open;
            }
            if glued(self.after(run.end)) {
                let Some(open) = self.text[run.clone()].rfind(is_open) else { continue };
                run.end = run.start + open;
            }
            lone.push(run);
        }
        lone
    }

    fn cards(&mut self) {
        for run in self.digit_runs() {
            let text = &self.text[run.clone()];
            let groups: Vec<Range<usize>> = groups_of_digits(text);
            for (from, first) in groups.iter().enumerate() {
                for last in &groups[from..] {
                    let digits: String =
                        text[first.start..last.end].chars().filter(char::is_ascii_digit).collect();
                    // Cards of all issuers begin with these.
                    if digits.len() > 19 {
                        break;
                    }
                    let is_card = digits.len() >= 13 && digits.starts_with(['2', '3', '4', '5', '6']);
                    if is_card && passes_luhn(&digits) {
                        self.add(run.start + first.start..run.start + last.end, Kind::Card);
                    }
                }
            }
        }
    }

    fn phones(&mut self, is_identifier: bool) {
        for run in self.digit_runs() {
            let text = &self.text[run.clone()];
            // Two numbers may follow each other.
            let starts: Vec<usize> = std::iter::once(0)
                .chain(text.match_indices('+').map(|(at, _)| at).filter(|at| *at > 0))
                .collect();
            for (place, start) in starts.iter().enumerate() {
                let end = starts.get(place + 1).copied().unwrap_or(text.len());
                let piece = &text[*start..end];
                let trimmed = piece.trim_start_matches(|c: char| !c.is_ascii_digit() && c != '+' && c != '(');
                let from = run.start + start + (piece.len() - trimmed.len());
                let number = trimmed.trim_end_matches(|c: char| !c.is_ascii_digit());
                if is_phone(number, is_identifier) {
                    self.add(from..from + number.len(), Kind::Phone);
                }
            }
        }
    }
}

fn is_token(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_' || character == '-'
}

fn groups_of_digits(text: &str) -> Vec<Range<usize>> {
    Found { text, parts: BTreeMap::new() }.runs(|c| c.is_ascii_digit())
}

/// A number with a `+`, or one that is written in groups, or dialled with a 0.
fn is_phone(number: &str, is_identifier: bool) -> bool {
    let digits = number.bytes().filter(u8::is_ascii_digit).count();
    if number.starts_with('+') {
        return (7..=15).contains(&digits);
    }
    let groups = groups_of_digits(number);
    let is_decimal = groups.len() == 2 && number.contains('.') && !number.contains([' ', '-', '(']);
    let is_date = groups.len() >= 3
        && groups[0].len() == 4
        && groups[1].len() == 2
        && groups[2].len() == 2
        && number[groups[0].end..].starts_with('-');
    let is_grouped = groups.len() >= 2 || number.starts_with('0');
    !is_identifier && (10..=15).contains(&digits) && is_grouped && !is_decimal && !is_date
}

fn is_uuid(word: &str) -> bool {
    word.len() == 36
        && word.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

const IBAN_LENGTH_MAX: usize = 34;

/// Letters and digits whose check digits fit.
fn is_iban(word: &str) -> bool {
    let bytes = word.as_bytes();
    let shape = (15..=IBAN_LENGTH_MAX).contains(&bytes.len())
        && bytes[..2].iter().all(u8::is_ascii_uppercase)
        && bytes[2..4].iter().all(u8::is_ascii_digit)
        && bytes[4..].iter().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    let rest = |rest: u32, byte: &u8| match byte {
        b'0'..=b'9' => (rest * 10 + u32::from(byte - b'0')) % 97,
        _ => (rest * 100 + u32::from(byte.wrapping_sub(b'A')) + 10) % 97,
    };
    shape && bytes[4..].iter().chain(&bytes[..4]).fold(0, rest) == 1
}

/// How often a word changes between small letters, capitals and digits: people's words do not, random ones do.
fn switches(word: &str) -> usize {
    let class = |byte: &u8| match byte {
        b'a'..=b'z' => Some(0),
        b'A'..=b'Z' => Some(1),
        b'0'..=b'9' => Some(2),
        _ => None,
    };
    let classes: Vec<i32> = word.as_bytes().iter().filter_map(class).collect();
    classes.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(&str, Kind)> {
        shapes(text, false, &Telling::default())
            .into_iter()
            .map(|(range, kind)| (&text[range], kind))
            .collect()
    }

    #[test]
    fn personal_parts_are_found_inside_texts() {
        let cases: &[(&str, &[(&str, Kind)])] = &[
            (
                "Call +49 (0)40 123-4567 or mail Ada.L@harbour.example!",
                &[("+49 (0)40 123-4567", Kind::Phone), ("Ada.L@harbour.example", Kind::Email)],
            ),
            ("(415) 555-2671", &[("(415) 555-2671", Kind::Phone)]),
            ("card 4111 1111 1111 1111 04/29", &[("4111 1111 1111 1111", Kind::Card)]),
            ("from 203.0.113.77, 2a02:8109::1", &[("203.0.113.77", Kind::Ip), ("2a02:8109::1", Kind::Ip)]),
            ("Bearer abcdefgh12345", &[("abcdefgh12345", Kind::Token)]),
            ("whsec_d2FyZWhvdXNl", &[("whsec_d2FyZWhvdXNl", Kind::Token)]),
            ("eyJhbGciOi.eyJzdWIi.c2ln", &[("eyJhbGciOi.eyJzdWIi.c2ln", Kind::Token)]),
            ("DE02120300000000202051", &[("DE02120300000000202051", Kind::Account)]),
            ("to DE02 1203 0000 0000 2020 51 today", &[("DE02 1203 0000 0000 2020 51", Kind::Account)]),
            ("call 01701234567", &[("01701234567", Kind::Phone)]),
            (
                "https://ada:pw@shop.example/orders/b1946ac92492d2347c6235b4d2611184/x?key=abc&page=2",
                &[
                    ("ada:pw", Kind::Token),
                    ("b1946ac92492d2347c6235b4d2611184", Kind::Token),
                    ("abc", Kind::Token),
                ],
            ),
            ("email=ada%40example.com&n=1", &[("ada%40example.com", Kind::Email)]),
        ];
        for (text, expected) in cases {
            assert_eq!(&found(text), expected, "{text}");
        }
    }

    #[test]
    fn what_only_resembles_it_is_left() {
        for text in [
            "2025-12-01T09:00:00+01:00",
            "2025-12-01 08:00",
            "c0034d4c-dd5e-4000-8969-008048123380",
            "gid://shopify/Order/4111111111111111",
            "12345678.90",
            "pi_3QRh2LInv1001",
            "2024-06-20",
            "Order for INV-1001",
            "orders@night",
            "820982911946154508",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
        assert_eq!(shapes("4111111111111111", true, &Telling::default()), []);
    }

    #[test]
    fn keys_say_what_they_hold() {
        for (key, of_people, kind) in [
            ("firstName", false, Some(Kind::Person)),
            ("customer-email-address", false, Some(Kind::Email)),
            ("browser_ip", false, Some(Kind::Ip)),
            ("client_secret", false, Some(Kind::Token)),
            ("name", false, None),
            ("name", true, Some(Kind::Person)),
            ("state", true, Some(Kind::Region)),
            ("state", false, None),
            ("ship", false, None),
            ("token_type", false, None),
        ] {
            assert_eq!(kind_of_key(key, of_people), kind, "{key}");
        }
        assert!(is_of_people("billing_details") && is_of_people("shippingAddress"));
        assert!(!is_of_people("shipping_lines") && !is_of_people("fulfillment_center"));
    }
}
