//! The C interface of worker scripts.

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::{
    CallbackState, Paths, RawEngine, RawServed, fill_foreign, fill_request, path_directives,
    request::{RawParam, RawRequest},
};
use crate::engine::Worked;
use crate::exchange::{Exchange, Next};
use crate::params::Params;

#[repr(C)]
#[derive(Default)]
struct RawWorked {
    last: RawServed,
    booted: bool,
    in_hand: bool,
}

unsafe extern "C" {
    fn maitred_php_work(boot: *const RawRequest, worked: *mut RawWorked);
    fn maitred_php_boot(boot: *const RawRequest, worked: *mut RawWorked);
}

/// The state of a worker script. C reads `request` and what it points to until it is answered.
pub(super) struct Work<'a> {
    engine: &'a RawEngine,
    /// The `CallbackState` that contains it, as C knows it.
    exchange: *mut c_void,
    params: Params,
    list: Vec<RawParam>,
    request: Option<RawRequest>,
}

callback! {
    pub(super) fn next(live) -> *const RawRequest, else ptr::null(), {
        let Some(work) = &mut live.work else {
            return ptr::null();
        };
        // C no longer points to the variables.
        work.list.clear();
        let next = live.exchange.next(&mut work.params);
        let foreign = match next {
            Next::Leave => return ptr::null(),
            Next::Own => None,
            Next::Foreign => {
                let paths = Paths {
                    directives: path_directives(),
                    engine: work.engine,
                };
                Some(live.exchange.translate(&mut work.params, &paths))
            }
        };
        let mut request = fill_request(&work.params, &mut work.list);
        if let Some(foreign) = foreign {
            fill_foreign(&mut request, &work.params, foreign);
        }
        request.exchange = work.exchange;
        ptr::from_ref(work.request.insert(request))
    }
}

callback! {
    pub(super) fn answered(live, served: *const RawServed), {
        // SAFETY: C passes one that stays as it is during the call.
        let served = unsafe { &*served };
        live.exchange.answered(&served.known());
    }
}

callback! {
    pub(super) fn freeze(live, why: *const c_char) -> bool, else false, {
        // SAFETY: C passes NULL, or a NUL-terminated text that stays during the call.
        let why = (!why.is_null()).then(|| unsafe { CStr::from_ptr(why) });
        let why = why.map(|why| why.to_string_lossy().into_owned());
        live.exchange.freeze(why)
    }
}

/// Runs a script that takes requests.
type Runner = unsafe extern "C" fn(*const RawRequest, *mut RawWorked);

impl RawEngine {
    pub(crate) fn work(&self, boot: &Params, exchange: &mut dyn Exchange) -> Worked {
        self.run_script(boot, exchange, maitred_php_work)
    }

    pub(crate) fn boot(&self, boot: &Params, exchange: &mut dyn Exchange) -> Worked {
        self.run_script(boot, exchange, maitred_php_boot)
    }

    fn run_script(&self, boot: &Params, exchange: &mut dyn Exchange, runner: Runner) -> Worked {
        let live = CallbackState::new(exchange);
        let own = live.for_c();
        live.with(|state| {
            state.work = Some(Work {
                engine: self,
                exchange: own,
                params: Params::new(),
                list: Vec::new(),
                request: None,
            });
        });
        let mut list = Vec::new();
        let mut request = fill_request(boot, &mut list);
        request.exchange = own;
        let mut worked = RawWorked::default();
        // SAFETY: PHP is started and this is its thread (`RawEngine` is not `Send`, and only its
        // methods call this); the request, its strings and the `CallbackState` outlive the call,
        // and Rust touches the `CallbackState` again only when C has returned, or within a
        // callback. What `next` returns stays until it is called again. No longjmp leaves the call:
        // the shim catches every bailout.
        unsafe { runner(&raw const request, &raw mut worked) };
        Worked { booted: worked.booted, in_hand: worked.in_hand, last: live.end(worked.last) }
    }
}
