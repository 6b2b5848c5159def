//! Laws of the translations of other servers' configurations, a module for each server. The folders beside this one
//! have configurations of the kinds that operators publish.

mod caddy;
mod caddy_closed;
mod caddy_oracle;
mod nginx;
mod nginx_lifetimes;
mod support;
mod vcl;
mod vcl_closed;
mod vcl_decisions;
mod written;
