//! Exact decimal numbers as providers write them: `1099`, `"10.10"`, `1.099e3`. Never a float.

/// A number `digits × 10^-scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal {
    digits: i128,
    scale: i32,
}

/// Digits beyond this cannot be an amount or a quantity that fits a `bigint`.
const DIGITS_MAX: usize = 30;
const EXPONENT_MAX: i32 = 60;

impl Decimal {
    /// Reads a JSON number or the same in text. `None` for anything else, and for what is out of all proportion.
    pub fn parse(text: &str) -> Option<Self> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => {
                // `parse` takes the one sign that JSON allows.
                (mantissa, exponent.parse::<i32>().ok()?)
            }
            None => (text, 0),
        };
        let (negative, unsigned) = match mantissa.strip_prefix('-') {
            Some(unsigned) => (true, unsigned),
            None => (false, mantissa),
        };
        let (whole, fraction) = match unsigned.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (unsigned, ""),
        };
        let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let length = whole.len() + fraction.len();
        if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || length > DIGITS_MAX {
            return None;
        }
        if !(-EXPONENT_MAX..=EXPONENT_MAX).contains(&exponent) {
            return None;
        }
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        let scale = i32::try_from(fraction.len()).ok()? - exponent;
        Some(Self { digits: if negative { -digits } else { digits }, scale })
    }

    /// The number times `10^decimals` as a whole number; `None` if that is not whole or does not fit.
    ///
    /// `10.10` with 2 decimals is 1010; `10.105` is nothing, not 1010 or 1011.
    pub fn shifted(self, decimals: i32) -> Option<i64> {
        let power = decimals - self.scale;
        if self.digits == 0 {
            return Some(0);
        }
        let factor = 10_i128.checked_pow(power.unsigned_abs())?;
        let whole = if power >= 0 {
            self.digits.checked_mul(factor)?
        } else if self.digits % factor == 0 {
            self.digits / factor
        } else {
            return None;
        };
        i64::try_from(whole).ok()
    }

    /// The number as a whole number; `None` for a fraction.
    pub fn whole(self) -> Option<i64> {
        self.shifted(0)
    }
}

#[cfg(test)]
mod tests {
    use super::Decimal;

    #[test]
    fn whole_numbers_in_any_dress_are_exact() {
        let whole = |text: &str| Decimal::parse(text).and_then(Decimal::whole);
        for (text, number) in [
            ("1099", 1099),
            ("1099.0", 1099),
            ("1.099e3", 1099),
            ("1.099E+3", 1099),
            ("109900E-2", 1099),
            ("-0", 0),
            ("-5", -5),
            ("9223372036854775807", i64::MAX),
            ("820982911946154508", 820_982_911_946_154_508),
            ("0e50", 0),
        ] {
            assert_eq!(whole(text), Some(number), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_whole_number_is_nothing() {
        let whole = |text: &str| Decimal::parse(text).and_then(Decimal::whole);
        for text in [
            "2.5",
            "",
            " 1",
            "1 ",
            "+1",
            ".5",
            "1.",
            "0x10",
            "1e",
            "1e400",
            "1e131072",
            "1e-2147483648",
            "0e-2147483648",
            "1e++2",
            "1e+-2",
            "18446744073709551616",
            "--1",
            "1_0",
            "NaN",
            "١",
        ] {
            assert_eq!(whole(text), None, "{text}");
        }
    }

    #[test]
    fn money_is_moved_by_the_currency_and_never_rounded() {
        let minor = |text: &str, decimals| Decimal::parse(text).and_then(|number| number.shifted(decimals));
        assert_eq!(minor("10.1", 2), Some(1010));
        assert_eq!(minor("10.10", 2), Some(1010));
        assert_eq!(minor("10.105", 2), None);
        assert_eq!(minor("500", 0), Some(500));
        assert_eq!(minor("500.00", 0), Some(500));
        assert_eq!(minor("1.234", 3), Some(1234));
    }
}
