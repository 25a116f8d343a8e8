//! The host file, its schema, exports and imports. One program, because linking one for each file takes
//! longer than running the tests.

mod examples;
mod export;
mod groups;
mod host_file;
mod import;
mod locks;
mod malformed;
mod meaning;
mod placement;
mod rt_app_meaning;
mod schema;
mod service;
mod smp;
mod xen;
