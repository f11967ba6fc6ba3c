//! Decimal numbers of any length: exact but for division. Knows nothing of templates.

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};

/// Decimals of a quotient.
const QUOTIENT_PLACES: i64 = 16;

/// `digits * 10^exponent`.
#[derive(Debug, Clone)]
pub struct Decimal {
    digits: BigInt,
    exponent: i64,
}

impl Decimal {
    /// The shortest decimal that reads back as the float; `None` for what is no finite number.
    pub fn from_float(float: f64) -> Option<Decimal> {
        if !float.is_finite() {
            return None;
        }
        let text = format!("{float:e}");
        let (mantissa, exponent) = text.split_once('e')?;
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits: i64 = format!("{whole}{fraction}").parse().ok()?;
        let exponent: i64 = exponent.parse().ok()?;
        Some(Decimal {
            digits: digits.into(),
            exponent: exponent - fraction.len() as i64,
        })
    }

    /// The nearest float.
    pub fn to_float(&self) -> f64 {
        let text = format!("{}e{}", self.digits, self.exponent);
        text.parse().unwrap_or(f64::NAN)
    }

    /// An upper bound of this operand's share in the size of a result.
    pub fn bytes(&self) -> usize {
        // The exponents of two floats differ by less than 650 digits.
        (self.digits.bits() / 8) as usize + 300 + self.exponent.unsigned_abs() as usize / 2
    }

    pub fn plus(&self, other: &Decimal) -> Decimal {
        let (left, right, exponent) = aligned(self, other);
        Decimal {
            digits: left + right,
            exponent,
        }
    }

    pub fn minus(&self, other: &Decimal) -> Decimal {
        let (left, right, exponent) = aligned(self, other);
        Decimal {
            digits: left - right,
            exponent,
        }
    }

    pub fn times(&self, other: &Decimal) -> Decimal {
        Decimal {
            digits: &self.digits * &other.digits,
            exponent: self.exponent + other.exponent,
        }
    }

    /// Rounded to 16 decimals, away from zero where two are as near; `None` for a division by 0.
    pub fn divided_by(&self, other: &Decimal) -> Option<Decimal> {
        if other.digits.sign() == Sign::NoSign {
            return None;
        }
        let shift = self.exponent - other.exponent + QUOTIENT_PLACES;
        let (dividend, divisor) = match shift.cmp(&0) {
            Ordering::Less => (self.digits.clone(), &other.digits * ten_to(-shift)),
            _ => (&self.digits * ten_to(shift), other.digits.clone()),
        };
        let quotient = &dividend / &divisor;
        let twice_rest: BigInt = (&dividend - &quotient * &divisor) * 2;
        let is_up = twice_rest.magnitude() >= divisor.magnitude();
        let away = if dividend.sign() == divisor.sign() {
            1
        } else {
            -1
        };
        Some(Decimal {
            digits: if is_up { quotient + away } else { quotient },
            exponent: -QUOTIENT_PLACES,
        })
    }
}

/// Both under the smaller exponent.
fn aligned(left: &Decimal, right: &Decimal) -> (BigInt, BigInt, i64) {
    let exponent = left.exponent.min(right.exponent);
    let under = |decimal: &Decimal| &decimal.digits * ten_to(decimal.exponent - exponent);
    (under(left), under(right), exponent)
}

fn ten_to(power: i64) -> BigInt {
    BigInt::from(10).pow(u32::try_from(power).unwrap_or(0))
}
