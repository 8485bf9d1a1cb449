//! Tables of aligned columns.

use maitred_text::humanize::shorten;

use super::cut;

/// A table: the title and width of each column. A negative width aligns to the left. The first
/// column is as wide as its longest cell, within its title and its width.
pub struct Table {
    columns: &'static [(&'static str, isize)],
    first: usize,
}

impl Table {
    /// The table whose first column holds `names`.
    pub fn new<'a>(
        columns: &'static [(&'static str, isize)],
        names: impl Iterator<Item = &'a str>,
    ) -> Table {
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
        for (index, (cell, (_, width))) in cells.into_iter().zip(self.columns).enumerate() {
            let blank = if index > 0 { " " } else { "" };
            let wide = width.unsigned_abs();
            line.push_str(&match *width {
                _ if index == 0 => format!("{:1$}", shorten(&cell, self.first), self.first),
                ..0 => format!("{blank}{cell:wide$}"),
                _ => format!("{blank}{cell:>wide$}"),
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
