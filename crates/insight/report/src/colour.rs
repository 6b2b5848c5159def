//! The colours of series. Readers with colour blindness can distinguish them, and they are visible on white
//! paper and in dark mode.
//!
//! The first two colours differ most. All colours have a contrast of at least 3:1 to the background, as WCAG
//! 2.2 (1.4.11) requires for graphics. A test checks the contrast.

/// The number of distinct colours. The slot of a series is the index of its colour. Further series use the colours
/// again, beginning with the first.
pub(crate) const SLOTS: usize = LIGHT.len();

/// Returns the CSS declarations of the custom properties `--s0`, `--s1`, … with these colours.
pub(crate) fn declarations(colours: &[&str; 8]) -> String {
    colours
        .iter()
        .enumerate()
        .map(|(slot, colour)| format!("--s{slot}:{colour};"))
        .collect()
}

/// The colours for the light background.
pub(crate) const LIGHT: [&str; 8] = [
    "#0068b5", "#c94f00", "#007a5e", "#a6407f", "#6a5acd", "#7a6200", "#5c5c5c", "#00808f",
];

/// The colours for the dark background.
pub(crate) const DARK: [&str; 8] = [
    "#58b4f0", "#ff9350", "#35c9a0", "#e89ac9", "#a9a1ff", "#d9b93a", "#b8b8b8", "#4fd0de",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_colour_has_enough_contrast_to_its_background() {
        for (colours, ground) in [(LIGHT, "#ffffff"), (DARK, "#14171a")] {
            let css = include_str!("page.css");
            assert!(css.contains(ground), "the page has another background");
            for colour in colours {
                let contrast = contrast(colour, ground);
                assert!(contrast >= 3.0, "{colour} on {ground}: {contrast:.2}");
            }
        }
    }

    /// Returns the contrast ratio of WCAG 2.2.
    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    fn luminance(colour: &str) -> f64 {
        [(1, 0.2126), (3, 0.7152), (5, 0.0722)]
            .iter()
            .map(|&(at, weight)| {
                let part =
                    u8::from_str_radix(&colour[at..at + 2], 16).expect("the colour is hexadecimal");
                let part = f64::from(part) / 255.0;
                let linear = if part <= 0.040_45 {
                    part / 12.92
                } else {
                    ((part + 0.055) / 1.055).powf(2.4)
                };
                linear * weight
            })
            .sum()
    }
}
