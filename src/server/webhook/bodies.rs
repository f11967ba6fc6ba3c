//! The bodies of requests in flight, bounded in total. Anybody who reaches the port may send one: the API server shows no
//! certificate by default. So strangers must neither fill the memory nor keep the API server's own requests out.
//!
//! A body counts as it arrives, so that a claim alone holds nothing. Where there is no room, the body that has been arriving
//! longest gives way: the API server sends its own within milliseconds, and who sends slowly loses. JSON takes far more memory
//! once it is read, so that what bodies become is bounded as well.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::cluster::vital::Mutex;
use crate::decide::admission::review;

const MIB: usize = 1024 * 1024;
/// An AdmissionReview has the object twice, and a held object has its content twice: the largest seen was 4.3 MB.
pub const BODY_MAX: usize = 7 * MIB;
/// The API server waits 5 s for an answer; a body that takes longer is nobody's.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a body waits until others are judged.
const ROOM_TIMEOUT: Duration = Duration::from_secs(2);
/// Bodies take memory in blocks of one size, which count whole: a buffer that grows would leave its old memory unused, and one for
/// all of a claim would be resident from its first byte on where the kernel gives out huge pages.
const BLOCK: usize = 32 * 1024;
/// Of the semaphore that counts what bodies become.
const PERMIT: usize = 1024;

/// Cheap to clone; all clones are one bound.
#[derive(Clone)]
pub struct Bodies {
    arriving: Arc<Mutex<Arriving>>,
    read: Arc<Semaphore>,
    read_max: usize,
}

struct Arriving {
    free: usize,
    next: u64,
    /// Bodies that are not complete, by when they began; their blocks.
    bodies: BTreeMap<u64, Vec<Vec<u8>>>,
}

impl Arriving {
    /// Room for one more block of this body. The body that has been arriving longest gives way.
    fn make_room(&mut self, number: u64) -> Result<(), Unread> {
        while self.free < BLOCK {
            let (_, oldest) = self.bodies.pop_first().ok_or(Unread::Busy)?;
            self.free += oldest.len() * BLOCK;
        }
        // It may have given way itself.
        let body = self.bodies.get_mut(&number).ok_or(Unread::Busy)?;
        body.push(Vec::with_capacity(BLOCK));
        self.free -= BLOCK;
        Ok(())
    }
}

/// Why there is no body to judge, and how to answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Unread {
    NotJson,
    TooSlow,
    TooLarge,
    /// Short, but much once it is read.
    TooDense {
        mib_max: usize,
    },
    /// No room is left for it.
    Busy,
    /// The client went away, and reads no answer.
    Gone,
}

impl Unread {
    pub fn answer(&self) -> (StatusCode, String) {
        match self {
            Unread::NotJson => {
                let text = "send application/json".to_owned();
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, text)
            }
            Unread::TooSlow => {
                let text = format!("the body did not come in {} s", BODY_TIMEOUT.as_secs());
                (StatusCode::REQUEST_TIMEOUT, text)
            }
            Unread::TooLarge => {
                let text = format!("the body has more than {BODY_MAX} bytes");
                (StatusCode::PAYLOAD_TOO_LARGE, text)
            }
            Unread::TooDense { mib_max } => {
                let text = format!(
                    "the body has so many values that it takes more than {mib_max} MiB once it is read"
                );
                (StatusCode::PAYLOAD_TOO_LARGE, text)
            }
            Unread::Busy => {
                let text = "lynqgate has no room for this body: too many arrive at once. Send it again; let only API servers reach \
                            this port (NetworkPolicy)";
                (StatusCode::SERVICE_UNAVAILABLE, text.to_owned())
            }
            Unread::Gone => (StatusCode::BAD_REQUEST, "the client went away".to_owned()),
        }
    }
}

/// A complete body. Its room is free again once this is dropped.
pub struct Whole {
    bytes: Vec<u8>,
    room: usize,
    arriving: Arc<Mutex<Arriving>>,
}

impl Deref for Whole {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        // First the memory, then the room for others.
        drop(std::mem::take(&mut self.bytes));
        self.arriving.lock().free += self.room;
    }
}

/// Room for what a body becomes: to be kept for as long as that is there.
pub type Room = OwnedSemaphorePermit;

impl Bodies {
    /// Room for so many bytes of bodies, and so many of what they become.
    pub fn new(bytes_max: usize, read_max: usize) -> Self {
        let arriving = Arriving {
            free: bytes_max,
            next: 0,
            bodies: BTreeMap::new(),
        };
        Bodies {
            arriving: Arc::new(Mutex::new(arriving)),
            read: Arc::new(Semaphore::new(read_max / PERMIT)),
            read_max,
        }
    }

    /// The gate's. It answers at once, so that its room is soon free again.
    pub fn of_gate() -> Self {
        Bodies::new(48 * MIB, 128 * MIB)
    }

    /// Those of forms and hubs, whose trial takes seconds: it must not take the gate's room.
    pub fn of_definitions() -> Self {
        Bodies::new(16 * MIB, 64 * MIB)
    }

    pub async fn read(&self, request: Request<Body>) -> Result<(Whole, Room), Unread> {
        let arrived = timeout(BODY_TIMEOUT, self.arrive(request)).await;
        let body = arrived.unwrap_or(Err(Unread::TooSlow))?;
        // What is judged now is soon done.
        let room = timeout(ROOM_TIMEOUT, self.room(&body)).await;
        let room = room.unwrap_or(Err(Unread::Busy))?;
        Ok((body, room))
    }

    async fn arrive(&self, request: Request<Body>) -> Result<Whole, Unread> {
        let type_ = request.headers().get(CONTENT_TYPE);
        let type_ = type_
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let media = type_.split(';').next().unwrap_or_default().trim();
        if !media.eq_ignore_ascii_case("application/json") {
            return Err(Unread::NotJson);
        }
        let mut body = request.into_body();
        let claimed = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if claimed > BODY_MAX {
            return Err(Unread::TooLarge);
        }
        if !self.may_fit(claimed) {
            return Err(Unread::Busy);
        }
        let mut part = Part {
            arriving: self.arriving.clone(),
            number: None,
        };
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| Unread::Gone)?.into_data() else {
                continue;
            };
            length += data.len();
            if length > BODY_MAX {
                return Err(Unread::TooLarge);
            }
            part.push(&data)?;
        }
        part.complete()
    }

    /// Whether it would fit if all that is not complete gave way.
    fn may_fit(&self, bytes: usize) -> bool {
        let arriving = self.arriving.lock();
        let blocks: usize = arriving.bodies.values().map(Vec::len).sum();
        bytes <= arriving.free + blocks * BLOCK
    }

    async fn room(&self, body: &[u8]) -> Result<Room, Unread> {
        let weight = match review::weight_max(body) {
            few if few <= self.read_max / 8 => few,
            _ => review::weight(body),
        };
        let permits = weight.div_ceil(PERMIT);
        if permits > self.read_max / PERMIT {
            let mib_max = self.read_max / MIB;
            return Err(Unread::TooDense { mib_max });
        }
        let permits = u32::try_from(permits).map_err(|_| Unread::TooLarge)?;
        let room = self.read.clone().acquire_many_owned(permits).await;
        Ok(room.expect("the semaphore is never closed"))
    }
}

/// A body that arrives. Dropped before it is complete, it leaves its room.
struct Part {
    arriving: Arc<Mutex<Arriving>>,
    /// From its first byte on.
    number: Option<u64>,
}

impl Part {
    fn push(&mut self, mut data: &[u8]) -> Result<(), Unread> {
        let mut arriving = self.arriving.lock();
        let number = *self.number.get_or_insert_with(|| {
            let number = arriving.next;
            arriving.next += 1;
            arriving.bodies.insert(number, Vec::new());
            number
        });
        while !data.is_empty() {
            let body = arriving.bodies.get_mut(&number).ok_or(Unread::Busy)?;
            match body.last_mut().filter(|block| block.len() < BLOCK) {
                None => arriving.make_room(number)?,
                Some(block) => {
                    let (some, rest) = data.split_at(data.len().min(BLOCK - block.len()));
                    block.extend_from_slice(some);
                    data = rest;
                }
            }
        }
        Ok(())
    }

    fn complete(mut self) -> Result<Whole, Unread> {
        let blocks = match self.number.take() {
            None => Vec::new(),
            Some(number) => {
                let body = self.arriving.lock().bodies.remove(&number);
                body.ok_or(Unread::Busy)?
            }
        };
        let room = blocks.len() * BLOCK;
        // Most bodies are one block, which is not copied.
        let one = <[Vec<u8>; 1]>::try_from(blocks);
        let bytes = one.map_or_else(|blocks| blocks.concat(), |[body]| body);
        Ok(Whole {
            room,
            bytes,
            arriving: self.arriving.clone(),
        })
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut arriving = self.arriving.lock();
        if let Some(body) = arriving.bodies.remove(&number) {
            arriving.free += body.len() * BLOCK;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};

    use axum::body::Bytes;
    use tokio::time::Instant;

    use super::*;

    /// Frames, and whether more would follow that never come.
    struct Sent(Vec<&'static [u8]>, bool);

    impl HttpBody for Sent {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
            match (self.0.pop(), self.1) {
                (Some(data), _) => {
                    Poll::Ready(Some(Ok(hyper::body::Frame::data(Bytes::from_static(data)))))
                }
                (None, true) => Poll::Pending,
                (None, false) => Poll::Ready(None),
            }
        }
    }

    fn request(body: Body) -> Request<Body> {
        let json = Request::post("/").header(CONTENT_TYPE, "application/json");
        json.body(body).unwrap()
    }

    fn of(text: &'static str) -> Request<Body> {
        request(Body::from(text))
    }

    #[tokio::test(start_paused = true)]
    async fn the_body_that_arrives_longest_gives_way_and_complete_ones_do_not() {
        let bodies = Bodies::new(2 * BLOCK, MIB);
        let slow = tokio::spawn({
            let bodies = bodies.clone();
            async move {
                let body = Body::new(Sent(vec![b"012345"], true));
                bodies.read(request(body)).await.err()
            }
        });
        tokio::task::yield_now().await;
        assert_eq!(bodies.arriving.lock().free, BLOCK);
        let (first, _) = bodies.read(of("[1,2,3]")).await.unwrap();
        let (second, _) = bodies.read(of("[4,5]")).await.unwrap();
        assert_eq!((&*first, &*second), (&b"[1,2,3]"[..], &b"[4,5]"[..]));
        let start = Instant::now();
        let busy = bodies.read(of("[6]")).await.err();
        assert_eq!((busy, start.elapsed().as_secs()), (Some(Unread::Busy), 0));
        drop(first);
        assert!(bodies.read(of("[6]")).await.is_ok());
        drop(second);
        assert_eq!(slow.await.unwrap(), Some(Unread::TooSlow));
        assert_eq!(bodies.arriving.lock().free, 2 * BLOCK);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_gave_way_is_told_at_its_next_part() {
        let bodies = Bodies::new(2 * BLOCK, MIB);
        let part = || Part {
            arriving: bodies.arriving.clone(),
            number: None,
        };
        let (mut old, mut new) = (part(), part());
        assert_eq!(old.push(b"0"), Ok(()));
        assert_eq!(new.push(b"1"), Ok(()));
        assert_eq!(new.push(&[0; BLOCK]), Ok(()));
        assert_eq!(old.push(b"2"), Err(Unread::Busy));
        assert_eq!(new.push(&[0; BLOCK]), Err(Unread::Busy), "all there is");
        drop((old, new));
        assert_eq!(bodies.arriving.lock().free, 2 * BLOCK);
    }

    #[tokio::test(start_paused = true)]
    async fn what_bodies_become_is_bounded() {
        let bodies = Bodies::new(MIB, 4 * PERMIT);
        let (_, held) = bodies.read(of(r#"[{"a":0},{"b":0}]"#)).await.unwrap();
        let waits = tokio::spawn({
            let bodies = bodies.clone();
            async move {
                bodies
                    .read(of(r#"[{"a":0},{"b":0},{"c":0},{"d":0}]"#))
                    .await
                    .is_ok()
            }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(held);
        assert!(waits.await.unwrap());
        let dense = bodies.read(of(r#"[{"":0},{"":0},{"":0},{"":0},{"":0},{"":0},{"":0}]"#));
        assert_eq!(dense.await.err(), Some(Unread::TooDense { mib_max: 0 }));
    }
}
