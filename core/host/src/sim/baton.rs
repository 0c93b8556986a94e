//! The baton: real threads of which exactly one runs, chosen by the seed.
//!
//! # Problem
//! A failure that depends on which thread ran first cannot be found again. To replay it, the choice
//! must come from a seed, and time must not come from the machine.
//!
//! # Mechanism
//! Threads of a simulation are real threads, but all of them wait except the one that has the
//! baton. Where real code would block (a lock that is taken, a condition, a device, a sleep) it
//! gives the baton to another thread that can run, chosen by the seed; and now and then also where
//! it would not block, so that other orders are seen. Some are set aside for a while then, as on a
//! machine with other things to do: much may happen between two of their steps. Time is virtual: it
//! moves a little at each step, and jumps to the next deadline when no thread can run.
//!
//! # Invariants
//! - Between two points at which a thread can give the baton away, no other thread of the
//!   simulation runs. So "look, then block" loses no wake-up.
//! - The same seed and the same program make the same choices: threads that can run are listed in
//!   the order of their numbers; addresses name what is waited for, but nothing is ordered by them.
//! - If no thread can run and none waits for a time, that is a deadlock: the run ends with a list
//!   of the threads and what each waits for.
//!
//! # How a run ends
//! When the first thread returns, when power is cut, or at a deadlock, the world is *halted*: each
//! other thread unwinds from where it waits, one after the other, so that memory is given back and
//! locks are released. This needs unwinding panics, as test builds have.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::random::Random;

/// Whether this process ever made a simulation. Real threads look only at this.
static ANY_SIMULATION: AtomicBool = AtomicBool::new(false);

thread_local! {
    static MEMBER: RefCell<Option<Member>> = const { RefCell::new(None) };
}

/// The simulation the calling thread belongs to, and its number there.
#[inline]
pub(crate) fn current() -> Option<Member> {
    if !ANY_SIMULATION.load(Ordering::Relaxed) {
        return None;
    }
    current_cold()
}

#[cold]
fn current_cold() -> Option<Member> {
    MEMBER
        .try_with(|member| member.borrow().clone())
        .ok()
        .flatten()
}

/// The longest virtual time one step takes. A guess at the cost of a lock.
const STEP_NS_MAX: u64 = 500;
/// What reading the clock takes, so that a loop that waits for a time ends.
const CLOCK_READ_NS: u64 = 20;

/// A thread of a simulation.
#[derive(Clone)]
pub(crate) struct Member {
    scheduler: Arc<Scheduler>,
    number: usize,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Woken {
    /// Another thread woke this one.
    #[default]
    ByOther,
    /// The time ran out.
    ByTime,
}

/// The simulation has ended; a thread that gets this unwinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Halted;

impl Halted {
    /// Leaves the thread, silently.
    pub(crate) fn unwind(self) -> ! {
        resume_unwind(Box::new(self))
    }
}

/// Why the world was halted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The first thread returned.
    Returned,
    /// Power was cut.
    PowerCut,
    /// No thread could run.
    Deadlock(String),
    /// Its threads were still waiting when their time was up.
    OutOfTime(String),
}

impl Member {
    /// Whether this is a thread of that scheduler.
    pub(crate) fn is_of(&self, scheduler: &Arc<Scheduler>) -> bool {
        Arc::ptr_eq(&self.scheduler, scheduler)
    }

    /// The scheduler this thread belongs to.
    pub(crate) fn scheduler(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }

    /// Tries until it succeeds, giving the baton away while it does not. Unwinds if the world ends.
    pub(crate) fn acquire<G>(
        &self,
        key: usize,
        name: &'static str,
        mut attempt: impl FnMut() -> Option<G>,
    ) -> G {
        self.may_switch();
        loop {
            if let Some(guard) = attempt() {
                return guard;
            }
            if let Err(halted) = self.block(key, name, None)
                && !std::thread::panicking()
            {
                halted.unwind();
            }
        }
    }

    /// Like [`Member::acquire`], but never unwinds: after the end, too, its holder releases it by
    /// unwinding.
    pub(crate) fn acquire_halted<G>(
        &self,
        key: usize,
        name: &'static str,
        mut attempt: impl FnMut() -> Option<G>,
    ) -> G {
        loop {
            if let Some(guard) = attempt() {
                return guard;
            }
            let _ = self.block_always(key, name, None);
        }
    }

    /// A point at which another thread may go on. Unwinds if the world has ended.
    pub(crate) fn may_switch(&self) {
        let mut state = self.scheduler.state.lock();
        state.step();
        let one_in = state.orders.switch_one_in;
        if state.end.is_none() && (one_in == 0 || state.random.below(one_in) != 0) {
            return;
        }
        state.threads[self.number].status = state.aside();
        self.hand_over(state)
            .unwrap_or_else(|halted| halted.unwind_unless_panicking());
    }

    /// Waits for a wake-up of `key`, or for the time to run out. Does not unwind.
    pub(crate) fn block(
        &self,
        key: usize,
        name: &'static str,
        timeout: Option<Duration>,
    ) -> Result<Woken, Halted> {
        if !std::thread::panicking() && self.scheduler.state.lock().end.is_some() {
            return Err(Halted);
        }
        self.block_always(key, name, timeout)
    }

    /// Like [`Member::block`], but waits also after the end.
    fn block_always(
        &self,
        key: usize,
        name: &'static str,
        timeout: Option<Duration>,
    ) -> Result<Woken, Halted> {
        let mut state = self.scheduler.state.lock();
        state.step();
        let deadline = timeout.map(|timeout| state.now_ns.saturating_add(nanoseconds(timeout)));
        let thread = &mut state.threads[self.number];
        thread.woken = Woken::ByOther;
        thread.status = Status::Blocked(Blocked {
            key,
            name,
            deadline,
        });
        self.hand_over(state)
    }

    /// Waits until a virtual time. Unwinds if the world ends.
    pub(crate) fn sleep_until(&self, deadline_ns: u64, what: &'static str) {
        let now_ns = self.scheduler.now_ns();
        if deadline_ns > now_ns {
            let wait = Duration::from_nanos(deadline_ns - now_ns);
            let woken = self.block(NOBODY_WAKES, what, Some(wait));
            woken
                .map(|_| ())
                .unwrap_or_else(|halted| halted.unwind_unless_panicking());
        }
    }

    /// Lets one of the threads that wait for `key` run, chosen by the seed.
    pub(crate) fn wake_one(&self, key: usize) {
        let mut state = self.scheduler.state.lock();
        let waiting = state.waiting_for(key);
        if !waiting.is_empty() {
            let chosen = state.random.index(waiting.len());
            state.wake(waiting[chosen], Woken::ByOther);
        }
    }

    /// Lets all threads that wait for `key` run.
    pub(crate) fn wake_all(&self, key: usize) {
        let mut state = self.scheduler.state.lock();
        for number in state.waiting_for(key) {
            state.wake(number, Woken::ByOther);
        }
    }

    /// Ends the world, and this thread with it, unless it unwinds already.
    pub(crate) fn cut_power(&self) {
        self.scheduler.state.lock().halt(End::PowerCut);
        Halted.unwind_unless_panicking()
    }

    /// Starts a thread. It runs when it is given the baton.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> Joiner<T> {
        self.may_switch();
        let scheduler = self.scheduler.clone();
        let number = scheduler.state.lock().add_thread(name);
        let outcome = Arc::new(Mutex::new(None));
        let (member, result) = (Member { scheduler, number }, outcome.clone());
        let start = move || {
            member.enter();
            let awaited = member.await_baton(member.scheduler.state.lock());
            let ended = match awaited {
                Ok(_) => catch_unwind(AssertUnwindSafe(body)),
                Err(halted) => {
                    // What it holds may want a lock when it goes, and unwind: the thread must
                    // finish all the same.
                    let _ = catch_unwind(AssertUnwindSafe(|| drop(body)));
                    Err(Box::new(halted) as Box<dyn Any + Send>)
                }
            };
            let panicked = ended
                .as_ref()
                .err()
                .and_then(|payload| panic_message(&**payload));
            *result.lock() = Some(ended);
            drop(result);
            MEMBER.set(None);
            member.finish(panicked);
        };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(start);
        thread.expect("the system can start a thread");
        Joiner {
            member: self.clone(),
            number,
            outcome,
        }
    }

    /// Makes the calling thread this member.
    fn enter(&self) {
        MEMBER.set(Some(self.clone()));
    }

    /// Gives the baton to the next thread, and waits until it comes back. The status says why this
    /// thread waits.
    fn hand_over(&self, mut state: MutexGuard<'_, State>) -> Result<Woken, Halted> {
        state.running = None;
        state.choose_next();
        if state.running != Some(self.number) {
            self.scheduler.pass_on(&state);
        }
        self.await_baton(state)
    }

    fn await_baton(&self, mut state: MutexGuard<'_, State>) -> Result<Woken, Halted> {
        let turn = state.threads[self.number].turn.clone();
        while state.running != Some(self.number) {
            turn.wait(&mut state);
        }
        state.threads[self.number].status = Status::Running;
        // When the first thread waits for the others to unwind, the end is no reason for it to
        // unwind.
        let is_last = state.is_ending && self.number == FIRST;
        if state.end.is_some() && !is_last {
            return Err(Halted);
        }
        Ok(state.threads[self.number].woken)
    }

    /// The thread has ended: the baton goes on for ever.
    fn finish(&self, panicked: Option<String>) {
        let mut state = self.scheduler.state.lock();
        let thread = &mut state.threads[self.number];
        thread.status = Status::Finished;
        if panicked.is_some() && state.panic_end_ns.is_none() {
            state.panic_end_ns = Some(state.now_ns.saturating_add(AFTER_PANIC_NS));
        }
        state.threads[self.number].panicked = panicked;
        for number in state.waiting_for(finished_key(self.number)) {
            state.wake(number, Woken::ByOther);
        }
        for number in state.waiting_for(ANY_FINISHED) {
            state.wake(number, Woken::ByOther);
        }
        state.running = None;
        state.choose_next();
        self.scheduler.pass_on(&state);
    }
}

impl Halted {
    /// Unwinds, unless the thread does so already; then the caller carries on with its destructors.
    fn unwind_unless_panicking<T: Default>(self) -> T {
        if std::thread::panicking() {
            T::default()
        } else {
            self.unwind()
        }
    }
}

/// Waits for a thread of the simulation to end.
pub(crate) struct Joiner<T> {
    member: Member,
    number: usize,
    outcome: Arc<Mutex<Option<std::thread::Result<T>>>>,
}

impl<T> Joiner<T> {
    /// Waits; gives what the thread returned, or what it panicked with.
    pub(crate) fn join(self) -> std::thread::Result<T> {
        let me = current().filter(|me| me.is_of(&self.member.scheduler));
        let me = me.expect("a simulated thread is joined by a thread of its simulation");
        while !self.is_finished() {
            let woken = me.block(finished_key(self.number), "the end of a thread", None);
            if let Err(halted) = woken
                && !std::thread::panicking()
            {
                halted.unwind();
            }
        }
        self.member.scheduler.state.lock().threads[self.number].panicked = None;
        self.outcome
            .lock()
            .take()
            .expect("a finished thread left its result")
    }

    /// Whether it has ended. Asking takes a while, in which others run: it may be asked in a loop.
    pub(crate) fn poll_finished(&self) -> bool {
        if let Some(me) = current() {
            me.sleep_until(
                me.scheduler.now_ns() + STEP_NS_MAX,
                "a thread that may have ended",
            );
        }
        self.is_finished()
    }

    fn is_finished(&self) -> bool {
        let state = self.member.scheduler.state.lock();
        matches!(state.threads[self.number].status, Status::Finished)
    }
}

/// How often threads are interrupted that need not wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orders {
    /// At one in so many points the baton is given away; 0 means never.
    pub(crate) switch_one_in: u64,
    /// One in so many of them is a stall: the thread cannot have the baton for a while; 0 means
    /// never.
    pub(crate) stall_one_in: u64,
    /// The longest stall.
    pub(crate) stall_max: Duration,
    /// After this, the end of the run waits no longer for threads that still wait.
    pub(crate) end_ns: u64,
}

/// Decides which thread runs and what time it is.
pub(crate) struct Scheduler {
    state: Mutex<State>,
}

impl Scheduler {
    /// A world at virtual time `start_ns`.
    pub(crate) fn new(random: Random, orders: Orders, start_ns: u64) -> Arc<Scheduler> {
        ANY_SIMULATION.store(true, Ordering::Relaxed);
        let state = State {
            now_ns: start_ns,
            random,
            orders,
            threads: Vec::new(),
            running: None,
            end: None,
            is_ending: false,
            panic_end_ns: None,
            trace: 0,
            steps: 0,
        };
        Arc::new(Scheduler {
            state: Mutex::new(state),
        })
    }

    /// The virtual time. Reading it takes a moment.
    pub(crate) fn now_ns(&self) -> u64 {
        let mut state = self.state.lock();
        state.now_ns += CLOCK_READ_NS;
        state.now_ns
    }

    /// The same, for threads outside the simulation: no time passes.
    pub(crate) fn time_ns(&self) -> u64 {
        self.state.lock().now_ns
    }

    /// Draws from the seed.
    pub(crate) fn with_random<T>(&self, draw: impl FnOnce(&mut Random) -> T) -> T {
        draw(&mut self.state.lock().random)
    }

    /// Adds a fact to the trace.
    pub(crate) fn note(&self, fact: u64) {
        self.state.lock().note(fact);
    }

    /// A number that differs if anything happened differently, and how many steps there were.
    pub(crate) fn trace(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.trace, state.steps)
    }

    /// Runs `body` as the first thread, on the calling thread; then halts the world. Gives what it
    /// returned, or nothing if power was cut.
    pub(crate) fn run<T>(self: &Arc<Scheduler>, body: impl FnOnce() -> T) -> Option<T> {
        assert!(
            current().is_none(),
            "a simulation does not run inside another one"
        );
        let first = Member {
            scheduler: self.clone(),
            number: FIRST,
        };
        {
            let mut state = self.state.lock();
            assert!(
                state.running.is_none() && state.threads.is_empty(),
                "it runs once at a time"
            );
            state.end = None;
            state.panic_end_ns = None;
            state.add_thread("main");
            state.threads[FIRST].status = Status::Running;
            state.running = Some(FIRST);
        }
        first.enter();
        let ended = catch_unwind(AssertUnwindSafe(body));
        let (end, panics) = first.end_world();
        MEMBER.set(None);
        self.verdict(ended, end, &panics)
    }

    /// What the end of the first thread means.
    fn verdict<T>(&self, ended: std::thread::Result<T>, end: End, panics: &str) -> Option<T> {
        match (ended, end) {
            (_, End::Deadlock(list)) => panic!("the simulation came to a deadlock\n{list}"),
            (_, End::OutOfTime(list)) => panic!("the simulation came to no end\n{list}"),
            (Err(payload), End::PowerCut) if payload.is::<Halted>() && panics.is_empty() => None,
            (Err(payload), _) if !payload.is::<Halted>() => resume_unwind(payload),
            (_, _) if !panics.is_empty() => panic!("a thread of the simulation panicked\n{panics}"),
            (_, End::PowerCut) => None,
            (Ok(value), End::Returned) => Some(value),
            (Err(payload), End::Returned) => resume_unwind(payload),
        }
    }

    /// Wakes the thread that was chosen.
    fn pass_on(&self, state: &State) {
        if let Some(next) = state.running {
            state.threads[next].turn.notify_one();
        }
    }
}

impl Member {
    /// The first thread's last act: lets all others unwind, and clears the world for another run.
    fn end_world(&self) -> (End, String) {
        let mut state = self.scheduler.state.lock();
        state.halt(End::Returned);
        state.is_ending = true;
        while state
            .threads
            .iter()
            .skip(1)
            .any(|t| !matches!(t.status, Status::Finished))
        {
            let blocked = Blocked {
                key: ANY_FINISHED,
                name: "the end of all",
                deadline: None,
            };
            state.threads[FIRST].status = Status::Blocked(blocked);
            let _ = self.hand_over(state);
            state = self.scheduler.state.lock();
        }
        let panics = state.panics();
        state.running = None;
        state.is_ending = false;
        state.threads.clear();
        (state.end.take().expect("halted above"), panics)
    }
}

/// The number of the thread that runs the body of [`Scheduler::run`].
const FIRST: usize = 0;
/// Keys below any address.
const NOBODY_WAKES: usize = 0;
const ANY_FINISHED: usize = 1;

/// So long other threads go on after one panicked that is not joined. They may wait for it forever,
/// with timeouts.
const AFTER_PANIC_NS: u64 = 3_600 * 1_000_000_000;

/// What threads that join a thread wait for. Odd, so it is no address of a lock.
fn finished_key(number: usize) -> usize {
    3 + 2 * number
}

struct State {
    now_ns: u64,
    random: Random,
    orders: Orders,
    threads: Vec<Thread>,
    running: Option<usize>,
    end: Option<End>,
    /// The first thread waits for the others to unwind.
    is_ending: bool,
    /// When the simulation ends because a thread panicked, unless it is joined.
    panic_end_ns: Option<u64>,
    trace: u64,
    steps: u64,
}

struct Thread {
    name: String,
    status: Status,
    woken: Woken,
    turn: Arc<Condvar>,
    /// What it panicked with, until a thread joins it.
    panicked: Option<String>,
}

enum Status {
    Ready,
    Running,
    Blocked(Blocked),
    Finished,
}

struct Blocked {
    key: usize,
    name: &'static str,
    deadline: Option<u64>,
}

impl State {
    /// What a thread becomes that gives the baton away though it could go on: one of those that can
    /// run, or, now and then, one that cannot for a while.
    fn aside(&mut self) -> Status {
        let one_in = self.orders.stall_one_in;
        if self.end.is_some() || one_in == 0 || self.random.below(one_in) != 0 {
            return Status::Ready;
        }
        let stall_ns = self.random.magnitude(nanoseconds(self.orders.stall_max));
        Status::Blocked(Blocked {
            key: NOBODY_WAKES,
            name: "its turn, set aside",
            deadline: Some(self.now_ns.saturating_add(stall_ns)),
        })
    }

    fn add_thread(&mut self, name: &str) -> usize {
        self.threads.push(Thread {
            name: name.to_owned(),
            status: Status::Ready,
            woken: Woken::ByOther,
            turn: Arc::new(Condvar::new()),
            panicked: None,
        });
        self.threads.len() - 1
    }

    fn step(&mut self) {
        self.steps += 1;
        self.now_ns += 1 + self.random.below(STEP_NS_MAX);
    }

    /// FNV-1a over all facts.
    fn note(&mut self, fact: u64) {
        for byte in fact.to_le_bytes() {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn waiting_for(&self, key: usize) -> Vec<usize> {
        let waits = |thread: &Thread| matches!(&thread.status, Status::Blocked(b) if b.key == key);
        (0..self.threads.len())
            .filter(|number| waits(&self.threads[*number]))
            .collect()
    }

    fn wake(&mut self, number: usize, woken: Woken) {
        self.threads[number].status = Status::Ready;
        self.threads[number].woken = woken;
    }

    /// Chooses the thread that runs: one of those that can, or the one whose time comes first.
    fn choose_next(&mut self) {
        loop {
            self.wake_whose_time_has_come();
            let is_ready = |number: &usize| matches!(self.threads[*number].status, Status::Ready);
            let ready: Vec<usize> = (0..self.threads.len()).filter(is_ready).collect();
            if !ready.is_empty() {
                let next = ready[self.random.index(ready.len())];
                self.note(u64::try_from(next).unwrap_or(u64::MAX) ^ self.now_ns << 8);
                self.running = Some(next);
                return;
            }
            if let Some(deadline) = self.deadlines().min() {
                if self.is_too_late(deadline) && self.end.is_none() {
                    let list = self.listing();
                    self.halt(End::OutOfTime(list));
                    continue;
                }
                self.now_ns = self.now_ns.max(deadline);
            } else if self
                .threads
                .iter()
                .all(|t| matches!(t.status, Status::Finished))
            {
                return;
            } else {
                self.deadlock();
            }
        }
    }

    /// Whether the simulation is over by then: its time is up, or a thread panicked, and no other
    /// has joined it.
    fn is_too_late(&self, time_ns: u64) -> bool {
        let has_panicked = self.threads.iter().any(|thread| thread.panicked.is_some());
        let panic_end_ns = self.panic_end_ns.filter(|_| has_panicked);
        time_ns > self.orders.end_ns || panic_end_ns.is_some_and(|end_ns| time_ns > end_ns)
    }

    fn deadlines(&self) -> impl Iterator<Item = u64> {
        self.threads
            .iter()
            .filter_map(|thread| match &thread.status {
                Status::Blocked(blocked) => blocked.deadline,
                _ => None,
            })
    }

    fn wake_whose_time_has_come(&mut self) {
        for number in 0..self.threads.len() {
            if let Status::Blocked(Blocked {
                deadline: Some(deadline),
                ..
            }) = self.threads[number].status
                && deadline <= self.now_ns
            {
                self.wake(number, Woken::ByTime);
            }
        }
    }

    /// No thread can run. After the end this cannot be resolved: destructors wait for each other.
    fn deadlock(&mut self) {
        let list = self.listing();
        if self.end.is_some() {
            eprintln!("threads wait for each other while the simulation ends\n{list}");
            std::process::abort();
        }
        self.halt(End::Deadlock(list));
    }

    /// Ends the simulation: waiting threads wake to unwind.
    fn halt(&mut self, end: End) {
        if self.end.is_some() {
            return;
        }
        self.end = Some(end);
        for number in 0..self.threads.len() {
            if let Status::Blocked(_) = self.threads[number].status {
                self.wake(number, Woken::ByOther);
            }
        }
    }

    /// Each thread, and what it waits for.
    fn listing(&self) -> String {
        let mut names: BTreeMap<usize, usize> = BTreeMap::new();
        let mut list = String::new();
        for (number, thread) in self.threads.iter().enumerate() {
            let state = match &thread.status {
                Status::Ready => "can run".to_owned(),
                Status::Running => "runs".to_owned(),
                Status::Finished => continue,
                Status::Blocked(Blocked { key, name, .. }) => {
                    let next = names.len() + 1;
                    format!("waits for {name} (#{})", names.entry(*key).or_insert(next))
                }
            };
            let _ = writeln!(list, "  thread {number} {}: {state}", thread.name);
        }
        list + &self.panics()
    }

    /// The panics that no thread has seen.
    fn panics(&self) -> String {
        let panicked = |thread: &Thread| {
            thread
                .panicked
                .as_ref()
                .map(|message| format!("  {}: {message}\n", thread.name))
        };
        self.threads.iter().filter_map(panicked).collect()
    }
}

/// The message of a panic; nothing if the thread only unwound because the world ended.
fn panic_message(payload: &(dyn Any + Send)) -> Option<String> {
    if payload.is::<Halted>() {
        return None;
    }
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    Some(text.unwrap_or_else(|| "a panic without a message".to_owned()))
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
