//! Values: numbers with a shape, in host memory.

mod sealed {
    pub trait Sealed {}
}

/// The bits of an IEEE 754 binary16. Sums are in f32 and rounded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct F16(pub u16);

/// The bits of a bfloat16, the upper half of an f32. Sums are in f32 and rounded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct BF16(pub u16);

/// An element type: f32, f64, F16, BF16, and integers of 8 to 64 bits. All their bits are values.
pub trait Element: Copy + Send + Sync + 'static + sealed::Sealed {
    #[doc(hidden)]
    const DTYPE: i32;
}

macro_rules! elements {
    ($($kind:ty = $dtype:literal,)*) => {$(
        impl sealed::Sealed for $kind {}
        impl Element for $kind {
            const DTYPE: i32 = $dtype; // As tutti_dtype in proto/tutti_types.h.
        }
    )*};
}

elements! {
    f32 = 0, f64 = 1, F16 = 2, BF16 = 3, i8 = 4, u8 = 5, i32 = 6, i64 = 7, i16 = 9, u16 = 10,
    u32 = 11, u64 = 12,
}

/// The name of a dtype, by its number.
pub(crate) fn dtype_name(dtype: i32) -> &'static str {
    const NAMES: [&str; 13] =
        ["f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64", "bool", "i16", "u16", "u32", "u64"];
    usize::try_from(dtype).ok().and_then(|i| NAMES.get(i)).copied().unwrap_or("unknown")
}

/// A result.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor<T> {
    /// In C order.
    pub values: Vec<T>,
    /// Sizes; none for a single value.
    pub shape: Vec<usize>,
}

/// What a call reads: values of the caller, in C order. Slices, arrays and vectors become one of a
/// single dimension.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a, T> {
    values: &'a [T],
    shape: Option<&'a [usize]>,
}

impl<'a, T> TensorView<'a, T> {
    /// Values with a shape. If their numbers differ, the call that gets it is Other, for all peers.
    pub fn new(values: &'a [T], shape: &'a [usize]) -> Self {
        Self { values, shape: Some(shape) }
    }

    pub(crate) fn values(&self) -> &'a [T] {
        self.values
    }

    /// The shape for C, or why it is wrong.
    pub(crate) fn sizes(&self) -> Result<Vec<i64>, String> {
        let own = [self.values.len()];
        let shape = self.shape.unwrap_or(&own);
        let count = shape.iter().try_fold(1, |count: usize, size| count.checked_mul(*size));
        let sizes: Option<Vec<i64>> = shape.iter().map(|size| i64::try_from(*size).ok()).collect();
        sizes.filter(|_| count == Some(self.values.len())).ok_or_else(|| {
            format!("the shape {shape:?} does not hold {} values; make both equal", own[0])
        })
    }
}

impl<'a, T> From<&'a [T]> for TensorView<'a, T> {
    fn from(values: &'a [T]) -> Self {
        Self { values, shape: None }
    }
}

impl<'a, T, const N: usize> From<&'a [T; N]> for TensorView<'a, T> {
    fn from(values: &'a [T; N]) -> Self {
        values[..].into()
    }
}

impl<'a, T> From<&'a Vec<T>> for TensorView<'a, T> {
    fn from(values: &'a Vec<T>) -> Self {
        values[..].into()
    }
}

impl<'a, T> From<&'a Tensor<T>> for TensorView<'a, T> {
    fn from(tensor: &'a Tensor<T>) -> Self {
        Self::new(&tensor.values, &tensor.shape)
    }
}
