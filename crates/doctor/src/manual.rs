//! The page of the guide that describes the checks, made of the data file.
