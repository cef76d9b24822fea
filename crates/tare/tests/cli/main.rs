//! The program as a user meets it: what it prints, writes, and returns.

mod load;
mod mistakes;
mod target;
mod util;
mod wrk;
