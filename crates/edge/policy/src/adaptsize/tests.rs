//! Compares the models and the tuner of AdaptSize with simple implementations (`oracle`) that share no code with
//! them.

mod model;
mod oracle;
mod tuner;
