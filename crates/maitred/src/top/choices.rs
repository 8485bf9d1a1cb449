//! What the keys of `maitred top` have chosen. No terminal is needed.

use crossterm::event::KeyCode;

use crate::view::PoolOrder;

/// Longest filter, in characters.
const MAX_FILTER_CHARS: usize = 60;

/// A view of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tab {
    /// Pools, other tables, and running scripts below.
    #[default]
    Pools,
    /// Running scripts with their stacks.
    Workers,
    /// Kinds of paths.
    Routes,
    /// The page cache and proxied servers.
    Cache,
    /// The end of the error log.
    Logs,
    /// The nodes with the same purge log.
    Nodes,
}

impl Tab {
    /// All, in the order of their keys from `1` on.
    pub const ALL: [Tab; 6] =
        [Tab::Pools, Tab::Workers, Tab::Routes, Tab::Cache, Tab::Logs, Tab::Nodes];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Tab::Pools => "pools",
            Tab::Workers => "workers",
            Tab::Routes => "routes",
            Tab::Cache => "cache",
            Tab::Logs => "logs",
            Tab::Nodes => "nodes",
        }
    }

    /// The tab that is `by` further.
    fn moved(self, by: usize) -> Tab {
        let at = Tab::ALL.iter().position(|tab| *tab == self).unwrap_or(0);
        Tab::ALL[(at + by) % Tab::ALL.len()]
    }
}

/// What a key leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterKey {
    /// Another picture.
    Continue,
    /// The end.
    Quit,
}

/// What the keys have chosen.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    /// The view.
    pub tab: Tab,
    /// The order of the pools.
    pub order: PoolOrder,
    /// Whether each idle pool has a line.
    pub all: bool,
    /// Whether the picture is no longer refreshed.
    pub is_paused: bool,
    /// Lines of the tables above the screen; of the log, those below it.
    pub scrolled: usize,
    /// Only pools, requests, routes, sites, nodes and messages with this text are shown.
    pub filter: String,
    /// Whether keys are part of the filter.
    pub is_typing: bool,
    /// The shown server.
    pub server: usize,
}

impl Choices {
    /// A key was pressed. `page` is half a screen in lines, `servers` the number of servers.
    pub fn press(&mut self, key: KeyCode, page: usize, servers: usize) -> AfterKey {
        if self.is_typing {
            self.type_in(key);
            return AfterKey::Continue;
        }
        let scrolled = self.scrolled;
        // A log is looked at from its end.
        let key = match self.tab {
            Tab::Logs => upside_down(key),
            _ => key,
        };
        match key {
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Char('q') | KeyCode::Esc => return AfterKey::Quit,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('a') => self.all = !self.all,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('n') => self.server = (self.server + 1) % servers.max(1),
            KeyCode::Char(digit @ '1'..='6') => {
                let at = digit as usize - '1' as usize;
                self.open(Tab::ALL[at]);
            }
            KeyCode::Tab | KeyCode::Right => self.open(self.tab.moved(1)),
            KeyCode::BackTab | KeyCode::Left => self.open(self.tab.moved(Tab::ALL.len() - 1)),
            KeyCode::Up | KeyCode::Char('k') => self.scrolled = scrolled.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scrolled = scrolled.saturating_add(1),
            KeyCode::PageUp => self.scrolled = scrolled.saturating_sub(page),
            KeyCode::PageDown => self.scrolled = scrolled.saturating_add(page),
            KeyCode::Home => self.scrolled = 0,
            KeyCode::End => self.scrolled = usize::MAX,
            _ => {}
        }
        AfterKey::Continue
    }

    fn open(&mut self, tab: Tab) {
        (self.tab, self.scrolled) = (tab, 0);
    }

    fn type_in(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if self.filter.chars().count() < MAX_FILTER_CHARS => {
                self.filter.push(c);
            }
            _ => {}
        }
        self.scrolled = 0;
    }
}

/// The key that scrolls the other way.
fn upside_down(key: KeyCode) -> KeyCode {
    match key {
        KeyCode::Up | KeyCode::Char('k') => KeyCode::Down,
        KeyCode::Down | KeyCode::Char('j') => KeyCode::Up,
        KeyCode::PageUp => KeyCode::PageDown,
        KeyCode::PageDown => KeyCode::PageUp,
        KeyCode::Home => KeyCode::End,
        KeyCode::End => KeyCode::Home,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(choices: &mut Choices, keys: &str) {
        for key in keys.chars() {
            let key = match key {
                '\n' => KeyCode::Enter,
                '\t' => KeyCode::Tab,
                key => KeyCode::Char(key),
            };
            assert_eq!(choices.press(key, 10, 2), AfterKey::Continue);
        }
    }

    #[test]
    fn tabs_and_servers_are_gone_through_in_a_circle() {
        let mut choices = Choices::default();
        press(&mut choices, "3jj");
        assert_eq!((choices.tab, choices.scrolled), (Tab::Routes, 2));
        press(&mut choices, "\t");
        assert_eq!((choices.tab, choices.scrolled), (Tab::Cache, 0));
        press(&mut choices, "\t");
        assert_eq!(choices.tab, Tab::Logs);
        // Its end comes first.
        press(&mut choices, "kkj");
        choices.press(KeyCode::PageUp, 10, 2);
        assert_eq!(choices.scrolled, 11);
        press(&mut choices, "\t");
        assert_eq!((choices.tab, choices.scrolled), (Tab::Nodes, 0));
        press(&mut choices, "\t");
        assert_eq!((choices.tab, choices.scrolled), (Tab::Pools, 0));
        choices.press(KeyCode::BackTab, 10, 2);
        assert_eq!(choices.tab, Tab::Nodes);
        press(&mut choices, "n");
        assert_eq!(choices.server, 1);
        press(&mut choices, "n");
        assert_eq!(choices.server, 0);
    }

    #[test]
    fn keys_are_text_while_a_filter_is_typed_and_escape_ends_that_first() {
        let mut choices = Choices::default();
        press(&mut choices, "/shop q\n");
        assert_eq!((choices.filter.as_str(), choices.is_typing), ("shop q", false));
        assert_eq!(choices.press(KeyCode::Esc, 10, 1), AfterKey::Continue);
        assert_eq!(choices.filter, "");
        assert_eq!(choices.press(KeyCode::Esc, 10, 1), AfterKey::Quit);
        press(&mut choices, &format!("/{}", "x".repeat(500)));
        assert_eq!(choices.filter.len(), MAX_FILTER_CHARS);
    }
}
