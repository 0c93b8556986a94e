//! Stands in for the ranked locks of `host` until those are there.
#![allow(missing_docs)]
pub struct Rank;
impl Rank {
    pub const SPACE: Rank = Rank;
    pub const SPACE_FAILURES: Rank = Rank;
}
pub struct Mutex<T>(std::sync::Mutex<T>);
pub type MutexGuard<'a, T> = std::sync::MutexGuard<'a, T>;
impl<T> Mutex<T> {
    pub fn new(_: Rank, t: T) -> Self {
        Mutex(std::sync::Mutex::new(t))
    }
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}
pub struct Condvar(std::sync::Condvar);
impl Condvar {
    pub fn new() -> Self {
        Condvar(std::sync::Condvar::new())
    }
    pub fn notify_all(&self) {
        self.0.notify_all()
    }
    pub fn wait<'a, T>(&self, g: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(g).unwrap()
    }
}
