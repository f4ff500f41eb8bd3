//! ISO 4217: how many decimals a currency has.

/// The codes in circulation, by their number of decimals. Source: ISO 4217, list one.
const BY_DECIMALS: [(u32, &str); 4] = [
    (0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"),
    (
        2,
        "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF \
         CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD \
         HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT \
         MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR \
         SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU \
         UZS VED VES WST XCD XCG YER ZAR ZMW ZWG",
    ),
    (3, "BHD IQD JOD KWD LYD OMR TND"),
    (4, "CLF UYW"),
];

/// The number of decimals of a currency's minor unit; `None` for a code that is none.
///
/// `code` is upper-case.
pub fn decimals(code: &str) -> Option<u32> {
    if code.len() != 3 {
        return None;
    }
    BY_DECIMALS
        .iter()
        .find(|(_, codes)| codes.split_ascii_whitespace().any(|known| known == code))
        .map(|(decimals, _)| *decimals)
}

/// An amount of minor units for people: `129.00 USD`, `500 JPY`, `1.250 KWD`.
pub fn money(minor: i64, code: &str) -> String {
    let decimals = decimals(code).unwrap_or(0) as usize;
    let digits = format!("{:0width$}", minor.unsigned_abs(), width = decimals + 1);
    let (whole, fraction) = digits.split_at(digits.len() - decimals);
    let sign = if minor < 0 { "-" } else { "" };
    let point = if decimals > 0 { "." } else { "" };
    format!("{sign}{whole}{point}{fraction} {code}")
}

#[cfg(test)]
mod tests {
    use super::{decimals, money};

    #[test]
    fn an_amount_is_written_with_its_currencys_decimals() {
        let written = [(12_900, "USD"), (500, "JPY"), (1250, "KWD"), (-5, "EUR"), (i64::MIN, "JPY")];
        let expected = ["129.00 USD", "500 JPY", "1.250 KWD", "-0.05 EUR", "-9223372036854775808 JPY"];
        assert_eq!(written.map(|(minor, currency)| money(minor, currency)), expected);
    }

    #[test]
    fn currencies_have_their_own_number_of_decimals() {
        assert_eq!(["JPY", "USD", "KWD", "CLF"].map(decimals), [Some(0), Some(2), Some(3), Some(4)]);
        assert_eq!(["usd", "", "XXX", "US", "USDT"].map(decimals), [None; 5]);
    }
}
