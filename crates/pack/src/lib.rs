//! The pack: weights in the order in which the decoder streams them
