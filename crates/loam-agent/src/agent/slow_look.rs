//! Questions to the kernel that take long: a thread of their own asks them, one at a time, with rests.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between looks, at least.
const REST_MIN: Duration = Duration::from_millis(5);

/// The thread starts with the first question and ends with this.
#[derive(Debug)]
pub(super) struct SlowLook<Question, Answer> {
    ask: Option<SyncSender<Question>>,
    answer: Arc<Mutex<Option<Answer>>>,
}

impl<Question, Answer> Default for SlowLook<Question, Answer> {
    fn default() -> Self {
        Self { ask: None, answer: Arc::default() }
    }
}

impl<Question: Send + 'static, Answer: Send + 'static> SlowLook<Question, Answer> {
    /// Asks, unless the thread is busy or rests: `rest_share` times as long as it has looked. `name` is the thread's. False: there is no thread, and nothing is ever answered.
    pub(super) fn ask(
        &mut self,
        question: Question,
        name: &str,
        rest_share: u32,
        look: impl Fn(Question) -> Answer + Send + 'static,
    ) -> bool {
        let ask = self.ask.get_or_insert_with(|| {
            let (ask, questions) = sync_channel::<Question>(0);
            let answer = Arc::clone(&self.answer);
            let _ = std::thread::Builder::new().name(name.into()).spawn(move || {
                for question in questions {
                    let began = Instant::now();
                    let found = look(question);
                    *answer.lock().expect("neither side panics with it") = Some(found);
                    std::thread::sleep((began.elapsed() * rest_share).max(REST_MIN));
                }
            });
            ask
        });
        !matches!(ask.try_send(question), Err(TrySendError::Disconnected(_)))
    }

    /// The last answer, once.
    pub(super) fn take(&mut self) -> Option<Answer> {
        self.answer.try_lock().ok().and_then(|mut answer| answer.take())
    }

    #[cfg(test)]
    pub(super) fn forget_thread(&mut self) {
        self.ask = None;
    }

    #[cfg(test)]
    pub(super) fn has_thread(&self) -> bool {
        self.ask.is_some()
    }
}
