"""The FX graph under construction and the propagation of tensor metadata. All private APIs of torch for tracing are used here only."""
