//! Text with one id per line ([`edgeward_filter::id_in_line`]). Empty lines are skipped.

use std::io::{BufRead, Read as _};

use anyhow::Context as _;

use super::file::{FileSource, LineNumber};

/// Passes every id, with its line number, to `each`.
pub(super) fn read(
    source: &FileSource,
    mut input: impl BufRead,
    each: &mut dyn FnMut(LineNumber, &[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut line = Vec::with_capacity(256);
    let limit = source.line_bytes_max as u64;
    for number in 1.. {
        line.clear();
        let count = input
            .by_ref()
            .take(limit + 2)
            .read_until(b'\n', &mut line)
            .with_context(|| format!("cannot read {}", source.label()))?;
        if count == 0 {
            break;
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if line.len() as u64 > limit {
            let message = format!("a line is longer than {limit} bytes");
            let hint = "write one id per line; --line-bytes-max raises the limit";
            return Err(source.error_at(number, message).hint(hint).into());
        }
        let id = source.id_in(number, &line)?;
        if !id.is_empty() {
            each(number, id)?;
        }
    }
    Ok(())
}
