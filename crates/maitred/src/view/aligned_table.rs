//! Tables of aligned columns.

use maitred_text::humanize::shorten;

use super::cells::cut;

/// A table, whose columns are written as their titles and widths: `POOL -14 | BUSY 5`. A negative
/// width aligns to the left; a first column that does is as wide as its longest cell, within its
/// title and its width.
pub struct Table {
    columns: Vec<(&'static str, isize)>,
    first: usize,
}

impl Table {
    /// The table whose first column holds `names`.
    pub fn new<'a>(columns: &'static str, names: impl Iterator<Item = &'a str>) -> Table {
        let columns = columns.split('|').map(|column| {
            let (title, width) = column.trim().rsplit_once(' ').unwrap_or((column, ""));
            (title, width.parse().unwrap_or(0))
        });
        let columns: Vec<(&str, isize)> = columns.collect();
        let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
        let (title, width) = columns.first().copied().unwrap_or_default();
        let first = longest.clamp(title.len(), width.unsigned_abs().max(title.len()));
        Table { columns, first }
    }

    /// An empty line and the titles.
    pub fn head(&self) -> [String; 2] {
        let titles = self.columns.iter().map(|(title, _)| (*title).to_owned());
        [String::new(), self.row(titles)]
    }

    /// A line of cells, cut where it would be too long.
    pub fn row(&self, cells: impl IntoIterator<Item = String>) -> String {
        let mut line = String::new();
        for (index, (cell, (_, width))) in cells.into_iter().zip(&self.columns).enumerate() {
            let wide = width.unsigned_abs();
            if index > 0 {
                line.push(' ');
            }
            line.push_str(&match *width {
                ..0 if index == 0 => format!("{:1$}", shorten(&cell, self.first), self.first),
                ..0 => format!("{cell:wide$}"),
                _ => format!("{cell:>wide$}"),
            });
        }
        cut(line.trim_end())
    }
}

/// The first `most` items as lines, and how many more there are.
pub fn limited<T>(
    items: &[T],
    most: usize,
    lines: impl FnMut(&T) -> Vec<String>,
) -> impl Iterator<Item = String> {
    let more = items.len().saturating_sub(most);
    let more = (more > 0).then(|| format!("and {more} more"));
    let shown = items.iter().take(most).flat_map(lines).collect::<Vec<_>>();
    shown.into_iter().chain(more)
}
