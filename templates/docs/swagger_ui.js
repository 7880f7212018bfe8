"use strict";

SwaggerUIBundle({
  ...{{ settings|safe }},
  url: "{{ schema_url|escapejs }}",
  dom_id: "#swagger-ui",
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
});
