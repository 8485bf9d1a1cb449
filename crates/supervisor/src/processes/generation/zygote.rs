//! The zygote of a generation: when it has to run, and when it may rest.

use super::seat_state::SeatState;
use super::{GenerationAction, GenerationState, KillReason};
use crate::limits::Moment;
use crate::processes::life::Step;

impl GenerationState {
    /// Whether the zygote accepts orders.
    pub fn zygote_is_up(&self) -> bool {
        self.zygote.is_up()
    }

    /// Whether the zygote was dismissed.
    pub fn zygote_leaves(&self) -> bool {
        self.zygote.is_leaving()
    }

    /// Whether the zygote runs, or has to.
    pub(super) fn heeds_zygote(&self) -> bool {
        if !self.zygote.is_absent() {
            return true;
        }
        !self.leaving && (self.trial || self.zygote_rest().is_none() || self.lacks() > 0)
    }

    /// Whether the zygote is to be started now.
    pub fn waits_to_start(&self, now: Moment) -> bool {
        self.heeds_zygote() && self.zygote.may_start(now)
    }

    /// Since when the zygote is being started, if it is.
    pub fn starts_since(&self) -> Option<Moment> {
        self.zygote.starts_since()
    }

    /// Whether other zygotes are to start first.
    pub fn hold_start(&mut self, is_held: bool) {
        self.is_held = is_held;
        self.was_held |= is_held;
    }

    /// Whether the zygote is not started yet, since others start first.
    pub fn is_held(&self) -> bool {
        self.is_held && self.zygote.is_absent()
    }

    /// Whether others have started first.
    pub fn was_held(&self) -> bool {
        self.was_held
    }

    /// Whether the zygote may rest, unless it is kept.
    pub fn may_rest(&self) -> bool {
        !self.leaving && !self.trial && self.growth.zygote_rest().is_some()
    }

    /// This many workers are needed.
    pub(super) fn want(&mut self, workers: u32, now: Moment) {
        self.asked_at = self.asked_at.max((workers > 0).then_some(now));
        self.growth.want(workers);
    }

    /// It needs neither workers nor a zygote before the next request.
    pub fn rest(&mut self) {
        self.growth.rest();
    }

    /// When workers were last needed, or the last one ended. None before the first request.
    pub fn asked_at(&self) -> Option<Moment> {
        self.asked_at
    }

    /// When workers of the generation before this one were needed.
    pub fn was_asked_at(&mut self, at: Option<Moment>) {
        self.asked_at = self.asked_at.max(at);
    }

    /// Whether the last zygote did not start.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// When the zygote is started next, if its last start failed and it is needed.
    pub fn next_start(&self) -> Option<Moment> {
        let is_waited = self.has_failed && self.zygote.is_absent() && self.heeds_zygote();
        self.zygote.deadline().filter(|_| is_waited)
    }

    /// The longest wait for the next start of the zygote.
    pub fn longest_start_wait(&self) -> Moment {
        self.zygote.longest_wait()
    }

    /// What prevented the start of the zygote may be gone: the wait for the next start is over.
    pub fn retry_start(&mut self, now: Moment) {
        if self.has_failed {
            self.zygote.retry(now);
        }
    }

    /// Whether the zygote is to stay without workers. True if that has changed.
    pub fn keep_zygote(&mut self, keeps: bool) -> bool {
        std::mem::replace(&mut self.keeps_zygote, keeps) != keeps
    }

    /// Orders that were not carried out are void. So are announcements: an announced process has
    /// become our child by now, or never will.
    pub(super) fn zygote_ended(&mut self, now: Moment) {
        self.has_failed |= !self.zygote.is_up() && !self.zygote.is_leaving();
        self.zygote.ended(now);
        for place in &mut self.places {
            if matches!(place.state, SeatState::Ordered { .. } | SeatState::Announced { .. }) {
                place.state = SeatState::Empty { not_before: now };
            }
        }
    }

    pub(super) fn drop_zygote(&mut self, reason: KillReason, actions: &mut Vec<GenerationAction>) {
        if self.zygote.give_up().is_some() {
            actions.push(GenerationAction::KillZygote(reason));
        }
    }

    pub(super) fn zygote_due(&mut self, now: Moment, actions: &mut Vec<GenerationAction>) {
        if !self.heeds_zygote() || self.is_held() {
            self.unneeded_since = None;
            return;
        }
        let slow = match self.zygote.is_leaving() {
            true => KillReason::SlowEnd,
            false => KillReason::SlowStart,
        };
        match self.zygote.due(now) {
            Some(Step::Start) => actions.push(GenerationAction::StartZygote),
            Some(Step::Kill) => actions.push(GenerationAction::KillZygote(slow)),
            None => {}
        }
        self.rest_zygote(now, actions);
    }

    /// Dismisses a zygote that has had no workers, and needed none, for long enough.
    fn rest_zygote(&mut self, now: Moment, actions: &mut Vec<GenerationAction>) {
        let Some(rest) = self.zygote_rest() else {
            return;
        };
        let asked = !self.leaving && (self.trial || self.growth.wants() > 0);
        let needed = asked || !self.is_empty();
        if needed || !self.zygote.is_up() {
            self.unneeded_since = None;
        } else if now >= *self.unneeded_since.get_or_insert(now) + rest {
            self.unneeded_since = None;
            self.zygote.dismiss(now);
            actions.push(GenerationAction::DismissZygote);
        }
    }

    /// How long the zygote stays without work; none: for ever. One that did not start is not
    /// started again before workers are needed.
    pub(super) fn zygote_rest(&self) -> Option<Moment> {
        match self.fills_no_seat() {
            true => Some(Moment::ZERO),
            false if self.keeps_zygote && !self.has_failed => None,
            false => self.growth.zygote_rest(),
        }
    }
}
