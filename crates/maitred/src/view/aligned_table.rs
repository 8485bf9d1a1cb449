//! Tables of aligned columns.

use maitred_text::humanize::shorten;

/// Narrowest screen, in columns, on which no column of a table is left out.
const ALL_COLUMNS: usize = 90;

/// A column of a table.
struct Column {
    title: &'static str,
    /// Negative: aligned to the left.
    width: isize,
    is_shown: bool,
}

impl Column {
    fn parse(column: &'static str, screen: usize) -> Column {
        let (title, width) = column.trim().rsplit_once(' ').unwrap_or((column, ""));
        let needed = width.strip_suffix('?');
        Column {
            title,
            width: needed.unwrap_or(width).parse().unwrap_or(0),
            is_shown: needed.is_none() || screen >= ALL_COLUMNS,
        }
    }
}

/// A table, whose columns are written as their titles and widths: `POOL -14 | BUSY 5 | IDLE 5?`. A
/// negative width aligns to the left; a first column that does is as wide as its longest cell,
/// within its title and its width. A column with a question mark is left out of a narrow screen.
pub struct Table {
    columns: Vec<Column>,
    first: usize,
    screen: usize,
}

impl Table {
    /// The table whose first column holds `names`, for a screen that is `screen` columns wide.
    pub fn new<'a>(
        columns: &'static str,
        names: impl Iterator<Item = &'a str>,
        screen: usize,
    ) -> Table {
        let columns = columns.split('|').map(|column| Column::parse(column, screen));
        let columns: Vec<Column> = columns.collect();
        let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
        let first = columns.first().map_or(0, |column| {
            let title = column.title.len();
            longest.clamp(title, column.width.unsigned_abs().max(title))
        });
        Table { columns, first, screen }
    }

    /// An empty line and the titles.
    pub fn head(&self) -> [String; 2] {
        let titles = self.columns.iter().map(|column| column.title.to_owned());
        [String::new(), self.row(titles)]
    }

    /// A line of cells, one for each column, cut where it would be too long.
    pub fn row(&self, cells: impl IntoIterator<Item = String>) -> String {
        let cells = cells.into_iter().zip(&self.columns);
        let shown = cells.filter(|(_, column)| column.is_shown);
        let mut line = String::new();
        for (index, (cell, Column { width, .. })) in shown.enumerate() {
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
        shorten(line.trim_end(), self.screen)
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
