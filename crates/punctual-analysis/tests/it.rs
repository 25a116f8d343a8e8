//! What is guaranteed, against published numbers, another library and the simulator. One program, because
//! linking one for each file takes longer than running the tests.

mod library;
mod networks;
mod packet_path;
mod published;
mod soundness;
mod synthesize;
