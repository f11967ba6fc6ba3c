-- The product's database, as far as lynqgate looks at it: it reads these columns, with a user who may read no more.
CREATE DATABASE product;
USE product;

CREATE TABLE tenants (
    id       VARCHAR(40) PRIMARY KEY,
    active   BOOLEAN NOT NULL,
    url      VARCHAR(200) NOT NULL,
    plan     VARCHAR(20),
    replicas INT,
    region   VARCHAR(20),
    image    VARCHAR(200)
);

INSERT INTO tenants VALUES
    ('alder',   TRUE,  'https://alder.example.com/',   'basic',      1,    'eu-central-1', NULL),
    ('aspen',   TRUE,  'https://aspen.example.com/',   'pro',        2,    'eu-central-1', NULL),
    ('beech',   TRUE,  'https://beech.example.com/',   'basic',      1,    NULL,           NULL),
    ('birch',   TRUE,  'https://birch.example.com/',   NULL,         NULL, NULL,           NULL),
    ('cedar',   TRUE,  'https://cedar.example.com/',   'enterprise', 3,    'us-east-1',    NULL),
    ('cherry',  TRUE,  'https://cherry.example.com/',  'basic',      1,    'us-east-1',    NULL),
    ('cypress', TRUE,  'https://cypress.example.com/', 'pro',        2,    'us-east-1',    NULL),
    ('elder',   TRUE,  'https://elder.example.com/',   'basic',      1,    NULL,           NULL),
    ('elm',     TRUE,  'https://elm.example.com/',     'basic',      1,    NULL,           NULL),
    ('fir',     TRUE,  'https://fir.example.com/',     'pro',        2,    'eu-central-1', NULL),
    ('hazel',   TRUE,  'https://hazel.example.com/',   'basic',      1,    NULL,           NULL),
    ('holly',   TRUE,  'https://holly.example.com/',   'enterprise', 3,    'eu-central-1', NULL),
    ('juniper', TRUE,  'https://juniper.example.com/', 'basic',      1,    NULL,           NULL),
    ('larch',   TRUE,  'https://larch.example.com/',   'basic',      1,    'us-east-1',    NULL),
    ('linden',  TRUE,  'https://linden.example.com/',  'pro',        2,    NULL,           NULL),
    ('maple',   TRUE,  'https://maple.example.com/',   'basic',      1,    NULL,           NULL),
    ('oak',     TRUE,  'https://oak.example.com/',     'basic',      1,    NULL,           NULL),
    ('pine',    TRUE,  'https://pine.example.com/',    'pro',        2,    'eu-central-1', NULL),
    ('rowan',   TRUE,  'https://rowan.example.com/',   'basic',      1,    NULL,           NULL),
    ('willow',  TRUE,  'https://willow.example.com/',  'basic',      1,    NULL,           NULL),
    -- Not active: it gets nothing.
    ('yew',     FALSE, 'https://yew.example.com/',     'basic',      1,    NULL,           NULL);

CREATE USER 'lynq'@'%' IDENTIFIED BY 'demo';
GRANT SELECT ON product.* TO 'lynq'@'%';
