//! The functions of the system's GSS library, called with values that are right for them.
//!
//! The library is loaded when it is asked for first and stays: a machine without Kerberos needs
//! none, and a build no headers. All of its calls are in this file.
//!
//! # Invariants
//! - A [`Handle`] is null or what the library gave, and is released once, by its own function.
//! - What the library allocates is copied and given back before a call returns.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

/// Debian and Fedora name it so.
const LIBRARY: &CStr = c"libgssapi_krb5.so.2";

/// The mechanism: Kerberos 5 (RFC 1964), 1.2.840.113554.1.2.2.
pub(crate) const KRB5: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2];
/// `GSS_C_NT_HOSTBASED_SERVICE` (RFC 2744): 1.2.840.113554.1.2.1.4.
const HOSTBASED_SERVICE: [u8; 10] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 1, 4];

/// `GSS_S_CONTINUE_NEEDED`.
const CONTINUE_NEEDED: u32 = 1;
/// The bits of a status that say that a call failed.
const FAILED: u32 = 0xffff_0000;
/// Most bytes of the words for a status.
const WORDS_MAX: usize = 1024;

type Raw = *mut c_void;

/// `gss_buffer_desc`.
#[repr(C)]
struct Bytes {
    length: usize,
    value: *mut c_void,
}

/// `gss_OID_desc`.
#[repr(C)]
struct Oid {
    length: u32,
    elements: *const c_void,
}

/// `gss_OID_set_desc`.
#[repr(C)]
struct OidSet {
    count: usize,
    elements: *const Oid,
}

/// `gss_key_value_element_desc`.
#[repr(C)]
struct KeyValue {
    key: *const c_char,
    value: *const c_char,
}

/// `gss_key_value_set_desc`.
#[repr(C)]
struct KeyValues {
    count: u32,
    elements: *const KeyValue,
}

/// Declares the table of functions, and how each is found by its name.
macro_rules! functions {
    ($($field:ident = $name:literal: fn($($argument:ty),* $(,)?);)*) => {
        /// The functions that are used, by RFC 2744 and MIT's extensions.
        struct Functions {
            $($field: unsafe extern "C" fn(*mut u32, $($argument),*) -> u32,)*
        }

        impl Functions {
            fn find(library: *mut c_void) -> Result<Functions, String> {
                Ok(Functions {
                    $($field: {
                        let address = symbol(library, $name)?;
                        // SAFETY: the library's function of this name has this signature, by
                        // RFC 2744 and gssapi_ext.h, in all versions with this name of the file.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn(*mut u32, $($argument),*) -> u32,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    import_name = c"gss_import_name": fn(*const Bytes, *const Oid, *mut Raw);
    release_name = c"gss_release_name": fn(*mut Raw);
    display_name = c"gss_display_name": fn(Raw, *mut Bytes, *mut *const Oid);
    local_name = c"gss_localname": fn(Raw, *const Oid, *mut Bytes);
    acquire = c"gss_acquire_cred_from": fn(
        Raw, u32, *const OidSet, i32, *const KeyValues, *mut Raw, *mut *mut OidSet, *mut u32,
    );
    release_credential = c"gss_release_cred": fn(*mut Raw);
    accept = c"gss_accept_sec_context": fn(
        *mut Raw, Raw, *const Bytes, *const c_void, *mut Raw, *mut *const Oid, *mut Bytes,
        *mut u32, *mut u32, *mut Raw,
    );
    initiate = c"gss_init_sec_context": fn(
        Raw, *mut Raw, Raw, *const Oid, u32, u32, *const c_void, *const Bytes,
        *mut *const Oid, *mut Bytes, *mut u32, *mut u32,
    );
    delete = c"gss_delete_sec_context": fn(*mut Raw, *mut Bytes);
    get_mic = c"gss_get_mic": fn(Raw, u32, *const Bytes, *mut Bytes);
    verify_mic = c"gss_verify_mic": fn(Raw, *const Bytes, *const Bytes, *mut u32);
    wrap = c"gss_wrap": fn(Raw, i32, u32, *const Bytes, *mut i32, *mut Bytes);
    unwrap = c"gss_unwrap": fn(Raw, *const Bytes, *mut Bytes, *mut i32, *mut u32);
    release_bytes = c"gss_release_buffer": fn(*mut Bytes);
    display_status = c"gss_display_status": fn(u32, i32, *const Oid, *mut u32, *mut Bytes);
}

fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: `library` was opened and stays open; the name ends with a zero.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    match address.is_null() {
        true => Err(format!("it has no function {}", name.to_string_lossy())),
        false => Ok(address),
    }
}

/// The library, or why it cannot be used.
fn functions() -> Result<&'static Functions, String> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    let load = || {
        // SAFETY: the name ends with a zero. What the library does when it is loaded is to set up
        // locks of its own.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match library.is_null() {
            true => Err("it is not there, or lacks others".to_string()),
            false => Functions::find(library),
        }
    };
    LOADED.get_or_init(load).as_ref().map_err(Clone::clone)
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) words: String,
    /// For the other end.
    pub(crate) token: Vec<u8>,
}

/// The token for an initiator, and, when the context is there, its name and for how many seconds.
pub(crate) type Accepted = (Vec<u8>, Option<(Handle, u32)>);

/// A status of a call.
struct Outcome {
    major: u32,
    minor: u32,
}

impl Outcome {
    fn check(&self, functions: &Functions) -> Result<(), Failure> {
        match self.major & FAILED {
            0 => Ok(()),
            _ => Err(Failure {
                major: self.major,
                minor: self.minor,
                words: functions.words_of(self),
                token: Vec::new(),
            }),
        }
    }
}

impl Functions {
    /// Calls with a place for the minor status.
    fn call(&self, call: impl FnOnce(&Functions, *mut u32) -> u32) -> Outcome {
        let mut minor = 0;
        let major = call(self, &mut minor);
        Outcome { major, minor }
    }

    fn words_of(&self, outcome: &Outcome) -> String {
        /// `GSS_C_GSS_CODE` and `GSS_C_MECH_CODE`.
        const KINDS: [i32; 2] = [1, 2];
        let mut words = Vec::new();
        for (kind, status) in KINDS.into_iter().zip([outcome.major, outcome.minor]) {
            if status == 0 {
                continue;
            }
            let (mut more, mut bytes, krb5) = (0, Bytes::EMPTY, Oid::of(&KRB5));
            // SAFETY: all places outlive the call; the first part of the words is asked for.
            let told = self.call(|table, minor| unsafe {
                (table.display_status)(minor, status, kind, &krb5, &mut more, &mut bytes)
            });
            let mut text = self.take(&mut bytes);
            text.truncate(WORDS_MAX);
            if told.major == 0 {
                words.push(String::from_utf8_lossy(&text).into_owned());
            }
        }
        words.join(": ")
    }

    /// Copies what the library allocated, and gives it back.
    fn take(&self, bytes: &mut Bytes) -> Vec<u8> {
        if bytes.value.is_null() {
            return Vec::new();
        }
        // SAFETY: the library has filled the buffer: `length` bytes at `value`.
        let copy = unsafe { std::slice::from_raw_parts(bytes.value.cast::<u8>(), bytes.length) };
        let copy = copy.to_vec();
        // SAFETY: the buffer is the library's, and is not used any more.
        let _ = self.call(|table, minor| unsafe { (table.release_bytes)(minor, bytes) });
        copy
    }
}

impl Bytes {
    const EMPTY: Bytes = Bytes {
        length: 0,
        value: ptr::null_mut(),
    };

    /// For arguments, which the library only reads.
    fn of(bytes: &[u8]) -> Bytes {
        Bytes {
            length: bytes.len(),
            value: bytes.as_ptr().cast_mut().cast(),
        }
    }
}

impl Oid {
    fn of(bytes: &'static [u8]) -> Oid {
        Oid {
            length: u32::try_from(bytes.len()).expect("it has some bytes"),
            elements: bytes.as_ptr().cast(),
        }
    }
}

/// What a handle is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Name,
    Credential,
    Context,
}

/// A thing of the library's.
pub(crate) struct Handle {
    functions: &'static Functions,
    kind: Kind,
    raw: Raw,
}

// SAFETY: the library has no state of threads; names and credentials may be used by several at a
// time (MIT locks them inside), and a context is behind a lock of its owner's.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        let (kind, raw) = (self.kind, &mut self.raw);
        // SAFETY: the handle is of this kind, was given by the library, and is used no more.
        let _ = self.functions.call(|table, minor| unsafe {
            match kind {
                Kind::Name => (table.release_name)(minor, raw),
                Kind::Credential => (table.release_credential)(minor, raw),
                Kind::Context => (table.delete)(minor, raw, ptr::null_mut()),
            }
        });
    }
}

impl Handle {
    fn none(functions: &'static Functions, kind: Kind) -> Handle {
        let raw = ptr::null_mut();
        Handle {
            functions,
            kind,
            raw,
        }
    }

    /// A context that was not begun.
    pub(crate) fn new_context() -> Result<Handle, String> {
        Ok(Handle::none(functions()?, Kind::Context))
    }

    /// The name of a service: `nfs`, or `nfs@machine`.
    pub(crate) fn service(name: &str) -> Result<Result<Handle, Failure>, String> {
        let functions = functions()?;
        let mut handle = Handle::none(functions, Kind::Name);
        let (bytes, kind) = (Bytes::of(name.as_bytes()), Oid::of(&HOSTBASED_SERVICE));
        // SAFETY: the arguments outlive the call, which copies them.
        let done = functions.call(|table, minor| unsafe {
            (table.import_name)(minor, &bytes, &kind, &mut handle.raw)
        });
        Ok(done.check(functions).map(|()| handle))
    }

    /// The credential by which a service accepts contexts: its keys are in this file, or where the
    /// system has them.
    pub(crate) fn acceptor(service: &Handle, keytab: Option<&Path>) -> Result<Handle, Failure> {
        const ACCEPT: i32 = 2;
        assert!(service.kind == Kind::Name, "a service is a name");
        let keytab = keytab.map(|path| CString::new(path.as_os_str().as_bytes()));
        let Ok(keytab) = keytab.transpose() else {
            return Err(Failure {
                major: FAILED,
                minor: 0,
                words: "the name of the keytab has a zero byte".to_string(),
                token: Vec::new(),
            });
        };
        let element = keytab.as_ref().map(|path| KeyValue {
            key: c"keytab".as_ptr(),
            value: path.as_ptr(),
        });
        let store = element.as_ref().map(|element| KeyValues {
            count: 1,
            elements: element,
        });
        let krb5 = Oid::of(&KRB5);
        let mechanisms = OidSet {
            count: 1,
            elements: &krb5,
        };
        let mut handle = Handle::none(service.functions, Kind::Credential);
        // SAFETY: all arguments outlive the call, which keeps none; what is null may be.
        let done = service.functions.call(|table, minor| unsafe {
            (table.acquire)(
                minor,
                service.raw,
                0,
                &mechanisms,
                ACCEPT,
                store.as_ref().map_or(ptr::null(), ptr::from_ref),
                &mut handle.raw,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        });
        done.check(service.functions).map(|()| handle)
    }

    /// Takes a token of the initiator. Gives the token for it, and, when the context is there, the
    /// initiator's name and for how many seconds it is.
    pub(crate) fn accept(&mut self, acceptor: &Handle, token: &[u8]) -> Result<Accepted, Failure> {
        assert!(self.kind == Kind::Context && acceptor.kind == Kind::Credential);
        let functions = self.functions;
        let (input, mut output) = (Bytes::of(token), Bytes::EMPTY);
        let mut name = Handle::none(functions, Kind::Name);
        let mut lifetime_s = 0;
        // SAFETY: all places outlive the call; the context is null or one that is being accepted;
        // no credential of the client's is asked for.
        let done = functions.call(|table, minor| unsafe {
            (table.accept)(
                minor,
                &mut self.raw,
                acceptor.raw,
                &input,
                ptr::null(),
                &mut name.raw,
                ptr::null_mut(),
                &mut output,
                ptr::null_mut(),
                &mut lifetime_s,
                ptr::null_mut(),
            )
        });
        let token = functions.take(&mut output);
        if let Err(failure) = done.check(functions) {
            return Err(Failure { token, ..failure });
        }
        let is_done = done.major & CONTINUE_NEEDED == 0;
        Ok((token, is_done.then_some((name, lifetime_s))))
    }

    /// Takes a token of the acceptor, or none in the beginning. Gives the token for it, and whether
    /// the context is there. The system's credentials of this user count.
    pub(crate) fn initiate(
        &mut self,
        target: &Handle,
        token: &[u8],
    ) -> Result<(Vec<u8>, bool), Failure> {
        /// `GSS_C_MUTUAL_FLAG`, `GSS_C_CONF_FLAG`, `GSS_C_INTEG_FLAG`: RFC 2203 wants no sequence.
        const FLAGS: u32 = 2 | 16 | 32;
        assert!(self.kind == Kind::Context && target.kind == Kind::Name);
        let functions = self.functions;
        let (input, mut output, krb5) = (Bytes::of(token), Bytes::EMPTY, Oid::of(&KRB5));
        // SAFETY: all places outlive the call; the context is null or one that is being initiated.
        let done = functions.call(|table, minor| unsafe {
            (table.initiate)(
                minor,
                ptr::null_mut(),
                &mut self.raw,
                target.raw,
                &krb5,
                FLAGS,
                0,
                ptr::null(),
                &input,
                ptr::null_mut(),
                &mut output,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        });
        let token = functions.take(&mut output);
        done.check(functions)?;
        Ok((token, done.major & CONTINUE_NEEDED == 0))
    }

    /// A name in words: `user@REALM`.
    pub(crate) fn words(&self) -> String {
        assert!(self.kind == Kind::Name, "a name has words");
        let mut bytes = Bytes::EMPTY;
        // SAFETY: the name is the library's, and the place outlives the call.
        let _ = self.functions.call(|table, minor| unsafe {
            (table.display_name)(minor, self.raw, &mut bytes, ptr::null_mut())
        });
        String::from_utf8_lossy(&self.functions.take(&mut bytes)).into_owned()
    }

    /// The account of this machine that a name is for, by the rules of krb5.conf(5)
    /// (`auth_to_local`).
    pub(crate) fn account(&self) -> Option<String> {
        assert!(self.kind == Kind::Name, "a name has an account");
        let (mut bytes, krb5) = (Bytes::EMPTY, Oid::of(&KRB5));
        // SAFETY: as above.
        let done = self
            .functions
            .call(|table, minor| unsafe { (table.local_name)(minor, self.raw, &krb5, &mut bytes) });
        let account = self.functions.take(&mut bytes);
        done.check(self.functions).ok()?;
        String::from_utf8(account).ok()
    }

    /// The checksum of a message.
    pub(crate) fn mic(&self, message: &[u8]) -> Result<Vec<u8>, Failure> {
        let (message, mut mic) = (Bytes::of(message), Bytes::EMPTY);
        // SAFETY: the context is there, and the places outlive the call.
        let done = self.established().call(|table, minor| unsafe {
            (table.get_mic)(minor, self.raw, 0, &message, &mut mic)
        });
        let mic = self.functions.take(&mut mic);
        done.check(self.functions).map(|()| mic)
    }

    /// Whether a checksum is that of a message.
    pub(crate) fn verify(&self, message: &[u8], mic: &[u8]) -> Result<(), Failure> {
        let (message, mic) = (Bytes::of(message), Bytes::of(mic));
        // SAFETY: as above.
        let done = self.established().call(|table, minor| unsafe {
            (table.verify_mic)(minor, self.raw, &message, &mic, ptr::null_mut())
        });
        done.check(self.functions)
    }

    /// A message encrypted; false where the context cannot encrypt.
    pub(crate) fn wrap(&self, message: &[u8]) -> Result<(Vec<u8>, bool), Failure> {
        let (message, mut wrapped, mut is_encrypted) = (Bytes::of(message), Bytes::EMPTY, 0);
        // SAFETY: as above.
        let done = self.established().call(|table, minor| unsafe {
            (table.wrap)(
                minor,
                self.raw,
                1,
                0,
                &message,
                &mut is_encrypted,
                &mut wrapped,
            )
        });
        let wrapped = self.functions.take(&mut wrapped);
        done.check(self.functions)
            .map(|()| (wrapped, is_encrypted != 0))
    }

    /// What was wrapped, and whether it was encrypted.
    pub(crate) fn unwrap(&self, wrapped: &[u8]) -> Result<(Vec<u8>, bool), Failure> {
        let (wrapped, mut message, mut is_encrypted) = (Bytes::of(wrapped), Bytes::EMPTY, 0);
        // SAFETY: as above.
        let done = self.established().call(|table, minor| unsafe {
            (table.unwrap)(
                minor,
                self.raw,
                &wrapped,
                &mut message,
                &mut is_encrypted,
                ptr::null_mut(),
            )
        });
        let message = self.functions.take(&mut message);
        done.check(self.functions)
            .map(|()| (message, is_encrypted != 0))
    }

    /// The functions, for a context that was begun: with none the library reads null.
    fn established(&self) -> &'static Functions {
        assert!(
            self.kind == Kind::Context && !self.raw.is_null(),
            "a context"
        );
        self.functions
    }
}
