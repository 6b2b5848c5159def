//! Self-contained report pages: tables and plots as inline SVG, no script from elsewhere.
