//! Settings of the servers in the images.

/// nginx without a site.
pub const NGINX: &str = "\
user www-data;
worker_processes 1;
pid /var/run/nginx.pid;
error_log /dev/stderr notice;
events { worker_connections 512; }
http {
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    access_log /dev/stdout;
    include /etc/nginx/conf.d/*.conf;
}
";

/// Its only site.
pub const NGINX_SITE: &str = "\
server {
    listen 80;
    root /usr/share/nginx/html;
    index index.html;
}
";

/// Apache where upstream's image has it.
pub const HTTPD: &str = "\
ServerRoot /usr/local/apache2
ServerName localhost
Listen 80
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
LoadModule mime_module /usr/lib/apache2/modules/mod_mime.so
User www-data
Group www-data
DocumentRoot /usr/local/apache2/htdocs
DirectoryIndex index.html
TypesConfig /dev/null
PidFile /usr/local/apache2/logs/httpd.pid
ErrorLog /proc/self/fd/2
LogLevel notice
LogFormat \"%h %l %u %t \\\"%r\\\" %>s %b\" common
CustomLog /proc/self/fd/1 common
";

/// The command of upstream's image.
pub const HTTPD_FOREGROUND: &str = "\
#!/bin/sh
rm -f /usr/local/apache2/logs/httpd.pid
exec /usr/local/apache2/bin/httpd -f /usr/local/apache2/conf/httpd.conf -DFOREGROUND \"$@\"
";

/// What the image stands for: a spec that mounts it looks for the name.
pub const OS_RELEASE: &str = "PRETTY_NAME=\"Made of Debian's packages in the place of an image of Alpine Linux\"\nID=trine-test-image\n";
