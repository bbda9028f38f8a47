//! What is desired, and who may say so?
