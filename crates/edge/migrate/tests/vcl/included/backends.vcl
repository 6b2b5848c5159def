backend joomla { .host = "10.11.0.1"; .port = "80"; }
