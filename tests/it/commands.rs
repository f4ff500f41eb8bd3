//! The commands: the whole of what they print, and their exit codes.

use std::fs;

use crate::support::*;

#[test]
fn every_mistake_of_a_folder_is_reported_with_file_key_and_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let good = fs::read_to_string(repository().join("providers/stripe.toml")).unwrap();
    let shopify = fs::read_to_string(repository().join("providers/shopify.toml")).unwrap();
    let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
    write("a.toml", good.replace("algorithm = \"hmac-sha256\"", "algorithn = \"hmac-sha256\""));
    write("b.toml", good.replace("encoding = \"hex\"", "encoding = \"base32\""));
    write("c.toml", good.replace("{timestamp}.{body}", "{timestamp}."));
    write("d.toml", good.replace("decode = \"utf8\", ", ""));
    write("e.toml", good.replace("id = \"/id\"", "id = \"id\""));
    write("f.toml", good.replacen("change = \"invoice.paid\"", "change = \"invoice.payed\"", 1));
    write("g.toml", shopify.replacen("require = { at = \"/total_price\", present = true }\n", "", 1));
    write("h.toml", good.replace("past = 300", "past = -1"));
    write("i.toml", good.replace("title = \"Stripe\"", "title = Stripe"));
    write(
        "j.toml",
        good.replacen("payment = \"/data/object/id\"", "payment = { header = \"x-payment\" }", 1),
    );
    let ran = wharf(folder.path(), &[], &["providers", "check", "."]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    let expected = [
        "./a.toml: signature.algorithm: is missing; write for example `algorithm = \"hmac-sha256\"`",
        "./a.toml: signature.algorithn: is not a key of this table; did you mean `algorithm`?",
        "./b.toml: signature.encoding: is `base32`; write one of: \"hex\", \"base64\"",
        "./c.toml: signature.signed: does not contain {body}; a signature that leaves the body out proves nothing",
        "./d.toml: signature.key.decode: is missing; write for example `decode = \"utf8\"`",
        "./e.toml: event.id: `id`: a JSON pointer starts with `/`; write for example \"/data/id\"",
        "./f.toml: on[0].change: is `invoice.payed`; write one of: ",
        "./g.toml: on[0].require: is missing: the event type stands in a header that is not signed; ",
        "./h.toml: signature.tolerance_seconds.past: is -1; write a number from 1 to 86400",
        "./i.toml: line 4 is not TOML: ",
        "./j.toml: on[0].payment: reads the header `x-payment`, which is not signed; name a place in the body",
    ];
    for line in expected {
        assert!(ran.out.contains(line), "not reported: {line}\n{}", ran.out);
    }
    let files = ran.out.lines().filter_map(|line| line.get(..9)).filter(|start| start.ends_with(".toml:"));
    assert_eq!(files.collect::<std::collections::BTreeSet<_>>().len(), 10, "{}", ran.out);
    let ran = wharf(folder.path(), &[], &["providers", "check"]);
    assert_eq!(ran.out, "5 providers, no problems: shipbob, shiphero, shopify, stripe, warehouse\n");
    assert_eq!(ran.code, 0);
}

#[test]
fn what_sign_prints_verify_accepts() {
    let folder = tempfile::tempdir().unwrap();
    let body = payment_succeeded("evt_1", "pi_1", "INV-1", 100);
    fs::write(folder.path().join("body.json"), &body).unwrap();
    let secret = [("SECRET", "whsec_cli"), ("OTHER", "whsec_other"), ("NONE", "")];
    let signed = wharf(
        folder.path(),
        &secret,
        &[
            "sign",
            "--provider",
            "stripe",
            "--secret",
            "env:SECRET",
            "--at",
            "1764590400",
            "--body",
            "body.json",
        ],
    );
    assert_eq!((signed.code, signed.err.as_str()), (0, ""));
    let at = "1764590400";
    let digest = hex::encode(mac(b"whsec_cli", &[at.as_bytes(), b".", body.as_bytes()]));
    assert_eq!(signed.out, format!("stripe-signature: t={at},v1={digest}\n"));
    let verify = |secrets: &[&str], at: &str| {
        let mut arguments = vec!["verify", "--provider", "stripe", "--body", "body.json", "--at", at];
        arguments.extend([
            "--url",
            "https://x/webhooks/stripe",
            "--method",
            "POST",
            "--header",
            signed.out.trim(),
        ]);
        secrets.iter().for_each(|secret| arguments.extend(["--secret", *secret]));
        wharf(folder.path(), &secret, &arguments)
    };
    let good = verify(&["env:OTHER", "env:SECRET"], "1764590410");
    assert_eq!(good.code, 0);
    assert_eq!(
        good.out,
        "valid: signed with the secret of env:SECRET\n\
         signed at: 2025-12-01T12:00:00Z (10 s before the given time)\n\
         event id: evt_1\nevent type: payment_intent.succeeded\nchanges: invoice.paid\n"
    );
    let wrong = verify(&["env:OTHER"], "1764590410");
    assert_eq!(wrong.code, 1);
    assert_eq!(
        wrong.out,
        "refused: no signature fits any of the endpoint's secrets\nfailed check: signature wrong\n"
    );
    let stale = verify(&["env:SECRET"], "1764590800");
    assert_eq!(stale.code, 1);
    assert_eq!(
        stale.out,
        "refused: signed 400 s ago, more than the 300 s allowed\nfailed check: signature stale\n"
    );
    let empty = verify(&["env:NONE"], "1764590400");
    assert_eq!((empty.code, empty.out.as_str()), (2, ""));
    assert_eq!(empty.err, "wharf: the secret of `env:NONE` is empty; an empty key would let anyone sign\n");
    assert_eq!(wharf(folder.path(), &[], &["verify"]).code, 2);
}

#[test]
fn a_configuration_with_mistakes_says_all_of_them_before_anything_listens() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
[server]
listen = "8080"
answer_within_ms = 5
[[endpoint]]
name = "Stripe!"
provider = "strip"
tenant = "acme"
live = "yes"
secrets = ["env:UNSET", "whsec_in_the_file"]
[[endpoint]]
name = "b"
provider = "stripe"
live = true
tenant = "acme"
secrets = ["env:API_KEY"]
"#;
    fs::write(folder.path().join("wharf.toml"), text).unwrap();
    let ran = wharf(folder.path(), &[("API_KEY", "sk_live_abc")], &["serve"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    let expected = "wharf: 8 problems:
  wharf.toml: server.listen: `8080` is not an address; write for example \"127.0.0.1:8080\"
  wharf.toml: server.answer_within_ms: is 5; write a number from 100 to 60000
  wharf.toml: endpoint[0].name: `Stripe!` stands in a path; write it with a-z, 0-9, `-` and `_`
  wharf.toml: endpoint[0].provider: `strip` is not known; the providers are: shipbob, shiphero, shopify, stripe, warehouse
  wharf.toml: endpoint[0].live: is a text; write true or false
  wharf.toml: endpoint[0].secrets: `env:UNSET`: the environment variable UNSET is not set
  wharf.toml: endpoint[0].secrets: holds a text that is neither `env:NAME` nor `file:PATH`; a secret itself must not stand in the file
  wharf.toml: endpoint[1].secrets: the secret of `env:API_KEY` starts with `sk_`, which marks an API key; use the endpoint's signing secret
";
    assert_eq!(ran.err, expected);
}

#[test]
fn fixtures_are_replayed_compared_and_reported() {
    let database = Database::new();
    database.execute(&fs::read_to_string(repository().join("fixtures/setup.sql")).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let fixtures = repository().join("fixtures");
    let config = fs::read_to_string(fixtures.join("wharf.toml")).unwrap();
    let config = config.replace("file:", &format!("file:{}/", fixtures.display()));
    let listen = "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n";
    fs::write(folder.path().join("wharf.toml"), format!("{listen}{config}")).unwrap();
    let gateway = Gateway::start_configured(&database.url, &folder.path().join("wharf.toml"));
    let url = format!("http://{}", gateway.address);
    let replay = |more: &[&str]| {
        let paths = fixtures.display().to_string();
        let mut arguments = vec!["fixtures", "replay", paths.as_str(), "--url", url.as_str()];
        arguments.extend(more);
        wharf(folder.path(), &[], &arguments)
    };
    let first = replay(&["--json", "--junit", "report.xml"]);
    assert_eq!((first.code, first.err.as_str()), (0, ""), "{}", first.out);
    let count = first.out.lines().count();
    for line in first.out.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["as_expected"], true, "{line}");
    }
    let report = fs::read_to_string(folder.path().join("report.xml")).unwrap();
    for part in [format!("tests=\"{count}\""), "failures=\"0\"".to_owned()] {
        assert!(report.contains(&part), "{report}");
    }
    let again = replay(&["--again"]);
    assert_eq!(again.code, 0);
    assert!(again.out.ends_with(&format!("{count} fixtures, 0 differences\n")), "{}", again.out);
    let differs = replay(&[]);
    assert_eq!(differs.code, 1);
    assert!(differs.out.contains(": expected 200 processed, got 200 duplicate\n"), "{}", differs.out);
}
