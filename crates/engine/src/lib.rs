//! The engines that turn a token into the next
