//! Logarithm and exponential function with identical results on every machine.
//!
//! The functions of C libraries differ in the last digit. This difference can change one random number, and
//! then all later records of the trace. These functions use only additions, multiplications and divisions,
//! whose rounding IEEE 754 defines exactly.

use std::f64::consts::{LN_2, LOG2_E, SQRT_2};

/// Returns the natural logarithm of a positive, normal number.
#[inline]
pub(super) fn ln(x: f64) -> f64 {
    debug_assert!(x >= f64::MIN_POSITIVE && x.is_finite());
    // x = m * 2^e with m in [1/sqrt 2, sqrt 2).
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & MANTISSA_MASK) | EXPONENT_ZERO);
    if mantissa >= SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    // ln m = 2 artanh t = 2 (t + t^3/3 + t^5/5 + ...) with t = (m - 1) / (m + 1), at most
    // 0.1716, so that the term in t^21 is below 1e-17.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    let mut series = 0.0;
    for odd in [19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = series * square + 1.0 / odd;
    }
    exponent as f64 * LN_2 + 2.0 * t * series
}

/// Returns `e^x`; 0 if `x` is below -708, and infinity if it is above 709.
#[inline]
pub(super) fn exp(x: f64) -> f64 {
    if x < -708.0 {
        return 0.0;
    }
    if x > 709.0 {
        return f64::INFINITY;
    }
    // x = k ln 2 + r with |r| <= ln 2 / 2 = 0.347, so that the term r^14 / 14! is below 1e-17.
    let k = (x * LOG2_E + if x < 0.0 { -0.5 } else { 0.5 }) as i64;
    let r = x - k as f64 * LN_2;
    let mut series = 1.0;
    for n in [
        13.0, 12.0, 11.0, 10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0,
    ] {
        series = 1.0 + series * r / n;
    }
    series * f64::from_bits(((k + 1023) as u64) << 52)
}

const MANTISSA_MASK: u64 = (1 << 52) - 1;
/// The bits of an exponent of 0, which are also the bits of 1.0.
const EXPONENT_ZERO: u64 = 1023 << 52;

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with the platform's functions, the relative error of `exp` is below 2e-13. The error of `ln` is at
    /// most 1e-14: relative if the logarithm is above 1 or below -1, otherwise absolute.
    #[test]
    fn ln_and_exp_agree_with_the_platform() {
        let mut x = 1e-300;
        while x < 1e300 {
            let (ours, theirs) = (ln(x), x.ln());
            assert!(
                (ours - theirs).abs() <= 1e-14 * theirs.abs().max(1.0),
                "ln {x}"
            );
            x *= 1.37;
        }
        let mut x = -700.0;
        while x < 700.0 {
            let (ours, theirs) = (exp(x), x.exp());
            assert!(
                (ours / theirs - 1.0).abs() < 2e-13,
                "exp {x}: {ours} {theirs}"
            );
            x += 0.337;
        }
        assert_eq!((exp(-1e9), exp(1e9)), (0.0, f64::INFINITY));
        assert_eq!((ln(1.0), exp(0.0)), (0.0, 1.0));
    }
}
