//! What scripts wish the front to do for them while they wait: a worker writes it into its seat, the
//! thread that looks after its exchange finds it there, and one task hears them all.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::exchange::Loan;
use super::generation::Generation;

/// Wishes that have not been heard. A worker has one at a time, as long as it keeps to the rules.
const MAX_UNHEARD: usize = 4096;

/// What a script is told that wishes for something while too many others do.
const TOO_MANY: u32 = 0;

/// A wish of a script.
#[derive(Debug)]
pub struct Wish {
    /// The script's pool.
    pub pool: String,
    /// What the script wants, by the word of its worker.
    pub bytes: Vec<u8>,
    generation: Arc<Generation>,
    seat: u32,
    slot: usize,
    number: u32,
}

impl Wish {
    /// The script may go on; `verdict` says what came of it.
    pub fn grant(self, verdict: u32) {
        let link = self.generation.link();
        link.grant(self.seat, self.slot, self.number, verdict);
    }
}

/// Where wishes go.
#[derive(Debug, Clone)]
pub struct Wishes(mpsc::Sender<Wish>);

impl Wishes {
    /// The way there, and its end.
    pub fn new() -> (Wishes, mpsc::Receiver<Wish>) {
        let (sender, receiver) = mpsc::channel(MAX_UNHEARD);
        (Wishes(sender), receiver)
    }

    /// Looks whether the script of a loan has one.
    pub fn look(&self, pool: &str, loan: &mut Loan) {
        let Some((number, bytes)) = loan.generation.link().wish(&mut loan.lent) else {
            return;
        };
        let wish = Wish {
            pool: pool.to_owned(),
            bytes,
            generation: loan.generation.clone(),
            seat: loan.lent.seat(),
            slot: loan.lent.slot(),
            number,
        };
        if let Err(refused) = self.0.try_send(wish) {
            refused.into_inner().grant(TOO_MANY);
        }
    }
}
