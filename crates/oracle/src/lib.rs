//! Tests of the reference against an independent implementation
